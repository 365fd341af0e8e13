"""The faults of a log, switched on and healed while a simulation runs.

Each fault says what it models; a nemesis sets attributes and calls `heal`. Rates are 0 (never) to 1
(always). Random numbers are drawn from the given generator, and only while a rate is above 0, so
that a seed determines the run.

Each fault names the live test that observed it on a real Kafka. Two effects of Kafka need no
switch: timestamps that go back (they are the records' own:
`tests/live/test_kafka_faults.py::test_create_times_may_go_back_and_a_time_leads_to_the_first_record_at_or_above_it`)
and a producer that is poisoned by a refusal, which our client replaces before that is visible
(`tests/live/test_kafka_faults.py::test_a_refusal_poisons_an_idempotent_producer_of_a_client_library_and_not_ours`).
"""

import random
from collections.abc import Callable

import trio

from hermes_actors.log.base import LogUnavailable


class Faults:
    """The faults of one memory log. Initially there are none."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._healed = trio.lowlevel.ParkingLot()
        self.on_heal: list[Callable[[], None]] = []
        self._silent = False
        self._reads_silent = False
        self._replication_stopped = False
        self._reset_plain()

    def _reset_plain(self) -> None:
        self.delay_s: tuple[float, float] | None = None
        """Appends take a uniform time between these bounds: a loaded or far broker. One that takes
        longer than the log's `append_timeout_s` is Unknown for its caller. Seen by
        `tests/live/test_kafka_faults.py::test_a_slow_broker_makes_appends_slow_and_beyond_the_time_out_unknown`."""
        self.read_delay_s: tuple[float, float] | None = None
        """Reads, look-ups and commits take a uniform time between these bounds. Seen by
        `tests/live/test_kafka_faults.py::test_a_slow_broker_makes_reads_and_commits_slow`."""
        self.unavailable_rate = 0.0
        """Appends and changes of topics fail before anything is stored: no leader, connection
        refused, not enough in-sync replicas. Seen by
        `tests/live/test_three_brokers.py::test_too_few_replicas_in_sync_are_unavailable_and_nothing_is_stored`."""
        self.acknowledgement_lost_rate = 0.0
        """An append is stored, but its acknowledgement is lost: the connection broke between the
        two. The caller gets Unknown at once. Seen by
        `tests/live/test_kafka_faults.py::test_an_acknowledgement_lost_after_storing_is_unknown_at_ack_leader`."""
        self.partial_rate = 0.0
        """Only a prefix of a batch is stored, the rest is Unavailable: the batch was sent as
        several requests, and the broker went away between two. (In Kafka the request in flight
        may also be Unknown.) Seen by
        `tests/live/test_kafka_faults.py::test_of_a_batch_of_several_requests_only_a_prefix_is_stored`."""
        self.late_store = True
        """A request whose caller gave up (time-out, cancelled) is stored nevertheless when the
        broker gets to it: it was in a socket buffer. Seen by
        `tests/live/test_kafka_faults.py::test_a_request_whose_caller_has_given_up_is_stored_late`.
        False: it is dropped. Seen by
        `tests/live/test_kafka_faults.py::test_a_request_that_a_dead_connection_swallowed_is_unknown_and_never_stored`."""
        self.reads_failing = False
        """Reads and look-ups raise LogUnavailable: no leader to fetch from. Seen by
        `tests/live/test_kafka_faults.py::test_a_cluster_that_is_cut_off_refuses_appends_reads_and_commits_and_stores_nothing`."""
        self.commits_failing = False
        """Commits raise LogUnavailable and are not stored: no group coordinator. Seen by
        `tests/live/test_kafka_faults.py::test_a_cluster_that_is_cut_off_refuses_appends_reads_and_commits_and_stores_nothing`."""
        self.stale_commits = False
        """Look-ups return the previous commit of each partition: a former owner's lower commit
        came last, or the coordinator moved and lost the last one. Seen by
        `tests/live/test_kafka_faults.py::test_a_former_owners_lower_commit_overwrites_the_owners`."""

    @property
    def silent(self) -> bool:
        """Appends get no answer until healed: a stopped process, or a black hole in the network.
        The callers' timeouts make them Unknown; `late_store` determines whether they are stored
        then. Seen by
        `tests/live/test_kafka_faults.py::test_a_stopped_broker_makes_appends_unknown_and_stores_them_when_it_goes_on`.
        """
        return self._silent

    @silent.setter
    def silent(self, value: bool) -> None:
        self._silent = value
        self._wake_if_healed(value)

    @property
    def reads_silent(self) -> bool:
        """Reads, look-ups and commits get no answer until healed. On Kafka they end with
        LogUnavailable at the request's timeout. Seen by
        `tests/live/test_kafka_faults.py::test_a_stopped_broker_makes_reads_and_commits_wait_for_the_time_out`.
        """
        return self._reads_silent

    @reads_silent.setter
    def reads_silent(self, value: bool) -> None:
        self._reads_silent = value
        self._wake_if_healed(value)

    @property
    def replication_stopped(self) -> bool:
        """Followers do not fetch: records appended now are on the leader only.

        Readers do not see them (they are above the high watermark), ack LEADER acknowledges them,
        ack ALL waits; a leader change drops them. Seen by
        `tests/live/test_three_brokers.py::test_ack_leader_loses_what_the_followers_had_not_copied_when_the_leader_is_killed`.
        """
        return self._replication_stopped

    @replication_stopped.setter
    def replication_stopped(self, value: bool) -> None:
        self._replication_stopped = value
        self._wake_if_healed(value)

    def cut(self) -> None:
        """The datacentre fails at once and refuses connections: appends, reads and commits fail.
        Seen by
        `tests/live/test_kafka_faults.py::test_a_cluster_that_is_cut_off_refuses_appends_reads_and_commits_and_stores_nothing`.
        """
        self.unavailable_rate = 1.0
        self.reads_failing = True
        self.commits_failing = True

    def heal(self) -> None:
        """Remove all faults; requests held by a silent log continue."""
        self._reset_plain()
        self._silent = self._reads_silent = self._replication_stopped = False
        self._wake_if_healed(False)

    def _wake_if_healed(self, is_faulty: bool) -> None:
        if not is_faulty:
            for wake in self.on_heal:
                wake()
            self._healed.unpark_all()

    # For the log.

    @property
    def hold_appends(self) -> bool:
        """True while an append may have to wait."""
        return self._silent or self._replication_stopped or self.delay_s is not None

    async def reading(self, dc: str) -> None:
        """Apply the faults of reading: wait, and raise LogUnavailable if reads fail. Always a
        checkpoint.
        """
        await self.answering()
        if self.reads_failing:
            raise LogUnavailable(f"the log of {dc} cannot be read")

    async def answering(self) -> None:
        """Wait as long as the faults delay an answer. Always a checkpoint."""
        if self.read_delay_s is not None:
            await trio.sleep(self.draw_between(self.read_delay_s))
        else:
            await trio.lowlevel.checkpoint()
        while self.reads_silent:
            await self.healed()

    async def healed(self) -> None:
        """Wait until a fault that holds requests is healed."""
        await self._healed.park()

    def draw(self, rate: float) -> bool:
        """True if a fault with this rate strikes now."""
        return rate > 0 and (rate >= 1 or self._rng.random() < rate)

    def draw_between(self, bounds_s: tuple[float, float]) -> float:
        """Draw a delay in seconds within the bounds."""
        return self._rng.uniform(*bounds_s)

    def draw_prefix(self, count: int) -> int:
        """Draw how many of `count` ≥ 2 records of a torn batch were stored: at least one, not
        all.
        """
        return self._rng.randint(1, count - 1)
