"""Commits for subscriptions that are not consumed now. Their offsets stay in the log, and a
retransmission shows there at once, visible to the log's own tools.
"""

import logging
from collections.abc import Mapping
from math import isinf

import trio
from msgspec import Struct

from hermes_actors.actors.supervisor import run_until
from hermes_actors.consumer.offsets.progress import ASSERT_PAUSES_S, REFRESH_S, TopicProgress
from hermes_actors.coordination.owned import Owned
from hermes_actors.log.base import Log, LogUnavailable, UnknownTopic
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.runtime.clock import Clock
from hermes_actors.runtime.wakeup import Wakeup

_logger = logging.getLogger(__name__)

_TROUBLE_PAUSE_S = 5.0
_AT_ONCE_MAX = 16
_ASSERT_S = sum(ASSERT_PAUSES_S)


class _RestingSubscription(Struct):
    """A suspended subscription. `committed` is the version that the last commit was made for, or
    that another system's commits stand for. `due_s` infinite: it is left alone.
    """

    live: LiveSubscription
    log_topic: str
    owned: Owned
    due_s: float
    committed: LiveSubscription | None = None
    reached: Mapping[int, int] = {}


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

        A subscription that was never consumed here nor moved by a retransmission is left alone:
        another system may use its consumer group.
        """
        name = str(live.name)
        is_ours = self._log.dc in live.active_in or live.seek is not None
        due_s = self._clock.monotonic_s() if is_ours else float("inf")
        before = None if is_ours else live
        place = self._places.get(name)
        if place is not None and _life(place.live) == _life(live):
            is_same = (place.live.seek, place.owned) == (live.seek, owned)
            if is_same and not (is_ours and isinf(place.due_s)):
                return
            before = place.committed
        self._places[name] = _RestingSubscription(live, log_topic, owned, due_s, before)
        self._wakeup.set()

    def release(self, name: str) -> None:
        """Stop looking after a subscription that is now consumed, or was deleted. Never waits."""
        self._places.pop(name, None)

    def reached(self, name: str) -> tuple[str, Mapping[int, int]]:
        """Its log topic, and for each partition `PartitionOffsets.reached` at its last commit here.
        Empty if it is not suspended here, or not committed yet.
        """
        place = self._places.get(name)
        return ("", {}) if place is None else (place.log_topic, place.reached)

    async def run(self, stop: trio.Event) -> None:
        """Commit until `stop` is set."""
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
                    nursery.start_soon(self._keep_committed, name, at_work)

    def _next(self, at_work: set[str]) -> tuple[str, float]:
        """The next subscription to commit, and when. Infinite while the maximum number is being
        committed.
        """
        if len(at_work) >= _AT_ONCE_MAX:
            return "", float("inf")
        idle = ((name, each.due_s) for name, each in self._places.items() if name not in at_work)
        return min(idle, key=lambda each: each[1], default=("", float("inf")))

    async def _keep_committed(self, name: str, at_work: set[str]) -> None:
        """Commit for one subscription, concurrently: a log topic that does not answer holds up no
        other.
        """
        place = self._places.get(name)
        if place is None:
            # It was released in the meantime.
            at_work.discard(name)
            self._wakeup.set()
            return
        is_new = place.committed is not place.live
        try:
            await self._commit(place)
        except (LogUnavailable, UnknownTopic) as error:
            _logger.debug("%s, at rest: not committed: %r", place.live.name, error)
            wait_s = _TROUBLE_PAUSE_S
        else:
            # A late commit of the consumer that just stopped may overwrite the first one.
            wait_s = _ASSERT_S if is_new else REFRESH_S
            if place.committed is not place.live:
                # The lease is closed.
                wait_s = _TROUBLE_PAUSE_S
        place.due_s = self._clock.monotonic_s() + wait_s
        at_work.discard(name)
        self._wakeup.set()

    async def _commit(self, place: _RestingSubscription) -> None:
        live = place.live
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
            await progress.commit(self._clock.monotonic_s())
            if place.owned.lease.is_open():
                place.committed = live
                place.reached = {p: each.reached for p, each in progress.partitions.items()}


def _life(live: LiveSubscription) -> tuple[int, int]:
    return (live.incarnation, live.topic_incarnation)
