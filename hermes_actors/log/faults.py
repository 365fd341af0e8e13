"""What can go wrong in a log, dialled in and healed while a simulation runs.

Each fault names what it models; a nemesis sets attributes and calls `heal`. Rates are 0 (never)
to 1 (always), drawn from the generator passed in, and only while they are above 0, so that one
seed is one history.
"""

import random
from collections.abc import Callable

import trio


class Faults:
    """The faults of one memory log. As made, there are none."""

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
        longer than the log's `append_timeout_s` is Unknown to its caller."""
        self.read_delay_s: tuple[float, float] | None = None
        """Reads, look-ups and commits take a uniform time between these bounds."""
        self.unavailable_rate = 0.0
        """Appends and changes of topics fail before anything is stored: no leader, connection
        refused, not enough in-sync replicas."""
        self.acknowledgement_lost_rate = 0.0
        """An append is stored, but its acknowledgement never comes: the connection broke between
        the two. The caller has an Unknown at once."""
        self.partial_rate = 0.0
        """Of a batch of several records only a prefix is stored, the rest is Unavailable: the
        batch went as several requests and the broker left between two."""
        self.late_store = True
        """A request whose caller gave up (time-out, cancelled) is stored all the same when the
        broker gets to it: it lay in a socket buffer. False: it is dropped."""
        self.reads_failing = False
        """Reads and look-ups raise LogUnavailable: no leader to fetch from."""
        self.commits_failing = False
        """Commits raise LogUnavailable and are not stored: no group coordinator."""
        self.stale_commits = False
        """Look-ups of commits show the last but one of each partition: a former owner's lower
        commit came last, or the coordinator moved and lost the last one."""

    @property
    def silent(self) -> bool:
        """Appends do not answer until healed: a stopped process or a black hole in the network.

        The callers' time-outs make them Unknown; see `late_store` for what then becomes of them.
        """
        return self._silent

    @silent.setter
    def silent(self, value: bool) -> None:
        self._silent = value
        self._wake_if_healed(value)

    @property
    def reads_silent(self) -> bool:
        """Reads, look-ups and commits do not answer until healed."""
        return self._reads_silent

    @reads_silent.setter
    def reads_silent(self, value: bool) -> None:
        self._reads_silent = value
        self._wake_if_healed(value)

    @property
    def replication_stopped(self) -> bool:
        """Followers do not fetch: what is appended now is on the leader only.

        Readers do not see it (it is above the high watermark), ack LEADER acknowledges it, ack ALL
        waits; a leader change drops it.
        """
        return self._replication_stopped

    @replication_stopped.setter
    def replication_stopped(self, value: bool) -> None:
        self._replication_stopped = value
        self._wake_if_healed(value)

    def cut(self) -> None:
        """The datacentre is gone at once and says so: appends, reads and commits are refused."""
        self.unavailable_rate = 1.0
        self.reads_failing = True
        self.commits_failing = True

    def heal(self) -> None:
        """No fault any more; what was held by a silent log goes on."""
        self._reset_plain()
        self._silent = self._reads_silent = self._replication_stopped = False
        self._wake_if_healed(False)

    def _wake_if_healed(self, is_faulty: bool) -> None:
        if not is_faulty:
            for wake in self.on_heal:
                wake()
            self._healed.unpark_all()

    # What follows is asked by the log.

    @property
    def hold_appends(self) -> bool:
        """True while an append cannot be answered in one step."""
        return self._silent or self._replication_stopped or self.delay_s is not None

    async def healed(self) -> None:
        """Wait until some fault that holds requests is lifted."""
        await self._healed.park()

    def draw(self, rate: float) -> bool:
        """Whether a fault of that rate strikes now."""
        return rate > 0 and (rate >= 1 or self._rng.random() < rate)

    def draw_between(self, bounds_s: tuple[float, float]) -> float:
        """A delay in seconds within the bounds."""
        return self._rng.uniform(*bounds_s)

    def draw_prefix(self, count: int) -> int:
        """How many of `count` ≥ 2 records a torn batch stored: at least one, not all."""
        return self._rng.randint(1, count - 1)
