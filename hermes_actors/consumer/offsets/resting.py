"""Commits for subscriptions that are not consumed now, so that their offsets stay in the log and a
retransmission shows there at once, also to the log's own tools. Also measures their lag.
"""

import logging
from collections.abc import Mapping

import trio
from msgspec import Struct

from hermes_actors.actors.supervisor import run_until
from hermes_actors.consumer.offsets.partition import PartitionOffsets, read_first
from hermes_actors.consumer.offsets.progress import ASSERT_PAUSES_S, REFRESH_S, TopicProgress
from hermes_actors.coordination.owned import Owned
from hermes_actors.log.base import (
    EARLIEST,
    LATEST,
    Log,
    LogUnavailable,
    OffsetOutOfRange,
    UnknownTopic,
)
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.runtime.clock import Clock
from hermes_actors.runtime.wakeup import Wakeup
from hermes_actors.status.lag import Reached

_logger = logging.getLogger(__name__)

_TROUBLE_PAUSE_S = 5.0
_AT_ONCE_MAX = 16
_ASSERT_S = sum(ASSERT_PAUSES_S)
_LOOK_S, _LOOK_OF_EACH_S = 10.0, 0.2
"""Between two looks at one; with many the looks are rarer: five a second at most."""
_ANSWER_TIMEOUT_S = 5.0
_FIRST_TIMEOUT_S = 1.0


class _RestingSubscription(Struct):
    """A suspended subscription. `committed` is the version that the last commit was made for, or
    that another system's commits stand for; then it is not `is_ours`, and nothing is committed.
    `oldest` is the first message that waits in each partition: its offset, and when it was stored.
    """

    live: LiveSubscription
    log_topic: str
    owned: Owned
    due_s: float
    is_ours: bool
    committed: LiveSubscription | None
    commit_due_s: float = 0.0
    partitions: Mapping[int, PartitionOffsets] = {}
    oldest: Mapping[int, tuple[int, int]] = {}
    reached: Reached = Reached()


class Resting:
    """Commits on behalf of the suspended subscriptions that a node owns: at once when they are
    suspended or moved by a retransmission, and each hour.
    """

    def __init__(self, log: Log, clock: Clock, skew_ms: int, namespace: str = "") -> None:
        """Clocks differ by at most `skew_ms`."""
        self._log = log
        self._clock = clock
        self._namespace = namespace
        self._skew_ms = skew_ms
        # One per suspended subscription, so bounded by their number.
        self._places: dict[str, _RestingSubscription] = {}
        self._wakeup = Wakeup()

    def keep(self, live: LiveSubscription, log_topic: str, owned: Owned) -> None:
        """Look after a subscription that is not consumed from now on, or that has changed since.
        Never waits.

        For a subscription that was never consumed here nor moved by a retransmission nothing is
        committed: another system may use its consumer group.
        """
        name = str(live.name)
        is_ours = self._log.dc in live.active_in or live.seek is not None
        before = None if is_ours else live
        place = self._places.get(name)
        if place is not None and _life(place.live) == _life(live):
            is_same = (place.live.seek, place.owned) == (live.seek, owned)
            if is_same and is_ours is place.is_ours:
                return
            before = place.committed
        now_s = self._clock.monotonic_s()
        self._places[name] = _RestingSubscription(live, log_topic, owned, now_s, is_ours, before)
        self._wakeup.set()

    def release(self, name: str) -> None:
        """Stop looking after a subscription that is now consumed, or was deleted. Never waits."""
        self._places.pop(name, None)

    def reached(self, name: str) -> Reached:
        """How far it is by its last commit here. Empty if it is not suspended here, or not yet
        committed.
        """
        place = self._places.get(name)
        return Reached() if place is None else place.reached

    async def run(self, stop: trio.Event) -> None:
        """Commit and look until `stop` is set."""
        await run_until(stop, self._work)

    async def _work(self) -> None:
        at_work: set[str] = set()
        async with trio.open_nursery() as nursery:
            while True:
                now_s = self._clock.monotonic_s()
                name, due_s = self._next(at_work)
                if due_s > now_s:
                    await self._wakeup.wait(due_s - now_s)
                else:
                    at_work.add(name)
                    nursery.start_soon(self._tend, name, at_work)

    def _next(self, at_work: set[str]) -> tuple[str, float]:
        """The next subscription to commit, and when. Infinite while the maximum number is being
        committed.
        """
        if len(at_work) >= _AT_ONCE_MAX:
            return "", float("inf")
        idle = ((name, each.due_s) for name, each in self._places.items() if name not in at_work)
        return min(idle, key=lambda each: each[1], default=("", float("inf")))

    async def _tend(self, name: str, at_work: set[str]) -> None:
        """Look after one subscription, concurrently: a log topic that does not answer holds up no
        other.
        """
        place = self._places.get(name)
        if place is None:
            # It was released in the meantime.
            at_work.discard(name)
            self._wakeup.set()
            return
        try:
            if self._clock.monotonic_s() >= place.commit_due_s:
                await self._commit(place)
            with trio.move_on_after(_ANSWER_TIMEOUT_S):
                await self._look(place)
        except (LogUnavailable, UnknownTopic, OffsetOutOfRange) as error:
            _logger.debug("%s, at rest: %r", place.live.name, error)
            place.due_s = self._clock.monotonic_s() + _TROUBLE_PAUSE_S
        else:
            look_s = max(_LOOK_S, _LOOK_OF_EACH_S * len(self._places))
            place.due_s = min(place.commit_due_s, self._clock.monotonic_s() + look_s)
        at_work.discard(name)
        self._wakeup.set()

    async def _commit(self, place: _RestingSubscription) -> None:
        live, now_s = place.live, self._clock.monotonic_s()
        # A late commit of the consumer that just stopped may overwrite the first one.
        due_s = now_s + (REFRESH_S if place.committed is live else _ASSERT_S)
        if not place.is_ours and await self._log.committed(
            live.name.consumer_group(self._namespace), place.log_topic
        ):
            # The offsets are those of another system's consumers.
            place.partitions, place.commit_due_s = {}, due_s
            return
        progress = TopicProgress(
            place.committed or live,
            self._log,
            place.log_topic,
            self._namespace,
            place.owned,
            self._skew_ms,
        )
        await progress.load()
        if progress.go_to(live.seek):
            await progress.load()
        # Otherwise a consumer has started, and commits itself.
        if self._places.get(str(live.name)) is place:
            if place.is_ours:
                await progress.commit(now_s)
            if place.is_ours and not place.owned.lease.is_open():
                due_s = now_s + _TROUBLE_PAUSE_S
            else:
                place.committed, place.partitions = live, progress.partitions
            # A partition that the log has not shown yet is there soon.
            place.commit_due_s = now_s + _TROUBLE_PAUSE_S if progress.awaited else due_s

    async def _look(self, place: _RestingSubscription) -> None:
        """Look up how many messages are undelivered, and when the oldest was stored."""
        log, topic = self._log, place.log_topic
        settled: dict[int, int] = {}
        oldest: dict[int, tuple[int, int]] = {}
        starts = await log.positions(topic, EARLIEST)
        ends = await log.positions(topic, LATEST)
        for partition, offsets in place.partitions.items():
            start = starts.get(partition, 0)
            settled[partition] = max(offsets.reached, start)
            first = max(offsets.position, start)
            if first >= ends.get(partition, 0):
                continue
            known = place.oldest.get(partition)
            if known is not None and known[0] >= first:
                oldest[partition] = known
                continue
            with trio.move_on_after(_FIRST_TIMEOUT_S):
                record = await read_first(log, topic, partition, first, ends[partition])
                if record is None:
                    # Only marks of transactions are left.
                    settled[partition] = ends[partition]
                else:
                    oldest[partition] = record.offset, record.timestamp_ms
        place.oldest = oldest
        oldest_ms = min((stored_ms for _, stored_ms in oldest.values()), default=None)
        place.reached = Reached(topic, settled, oldest_ms)


def _life(live: LiveSubscription) -> tuple[int, int]:
    return (live.incarnation, live.topic_incarnation)
