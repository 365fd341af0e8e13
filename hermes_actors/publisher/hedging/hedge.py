"""Stores a topic's batches in the own datacentre, and also in another one when that takes too long.

Each message's fate is reported once: stored as soon as any datacentre has acknowledged it, or
failed when no datacentre is left or its time is up. Appends that are still running then continue,
and are only counted.
"""

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import outcome
import trio
from msgspec import Struct, field

from hermes_actors.config import FrontendConfig
from hermes_actors.fallback.chaos import roll
from hermes_actors.fallback.node import Fallback, Path
from hermes_actors.log.base import (
    LogUnavailable,
    Outcome,
    UnavailableRecord,
    UnknownRecord,
    stored_count,
)
from hermes_actors.log.batching import Batcher, PartitionBatch
from hermes_actors.model.message import Via
from hermes_actors.model.record import Record
from hermes_actors.model.topic import ChaosMode
from hermes_actors.publisher.hedging.decision import Decision, Orders, Send, Told
from hermes_actors.publisher.hedging.flight import Attempts, Flight
from hermes_actors.publisher.pending import Pending, Route

_logger = logging.getLogger(__name__)

_RELEASE_POLL_S = 0.05
_WAKE_MIN_S = 0.0002
_LOOKUP_FIRST_S = 0.05
_LOOKUP_MAX_S = 1.0
_LOOK_AGAIN_S = 30.0
_CHAOS = UnavailableRecord("a chaos experiment")

Records = Callable[[Sequence[Pending], str, str], Sequence[Record]]
"""Makes the records of these pendings, which are sent to this datacentre now, with this `via`."""

Settle = Callable[[str, Sequence[Pending], Sequence[Outcome], float], None]
"""Called once for each pending. Arguments: the datacentre, pendings, an outcome for each of their
messages in order, and how long the append took in seconds.
"""


class _Waiting(Struct, eq=False):
    """A producer that waits for its flight until `released`. `error` is the exception of an append
    that failed unexpectedly. `own_appends` counts the running appends to the own log.
    """

    released: trio.Event = field(default_factory=trio.Event)
    error: BaseException | None = None
    own_appends: int = 0


class Remote(Struct, eq=False):
    """A path to a remote, with its queue: one batch in flight for each partition, and messages of a
    key in the order in which they were queued.
    """

    path: Path
    batcher: Batcher[Attempts]
    used: trio.Event = field(default_factory=trio.Event)


class Hedge:
    """The hedge of one topic. Run `follow` beside it."""

    def __init__(
        self,
        fallback: Fallback,
        route: Route,
        config: FrontendConfig,
        *,
        records: Records,
        settle: Settle,
    ) -> None:
        self._fallback = fallback
        self._now_s = fallback.clock.monotonic_s
        self._route = route
        self._records = records
        self._settle = settle
        ack = route.topic.ack
        self.decision = Decision(
            Path(fallback.local, ack),
            [Path(dc, ack) for dc in fallback.remotes],
            route.name,
            config.max_publish_request_duration_ms / 1_000,
        )
        # One partition is a guess; nothing is added before the real number is known. A batch
        # without keys never waits for another one.
        self._remotes = {
            path: Remote(
                path,
                Batcher(
                    1,
                    records_max=config.batch_records_max,
                    bytes_max=config.batch_bytes_max,
                    first=0,
                    slow_s=0.0,
                ),
            )
            for path in self.decision.remotes
        }
        for path in self.decision.paths:
            path.on_open = self._opened
        self._waiting: dict[Flight, _Waiting] = {}
        self._next_s = math.inf
        self._is_sooner = trio.Event()

    async def append(self, pendings: Sequence[Pending], partition: int) -> None:
        """Store a batch. Returns when the fate of each pending has been reported or taken over.

        While no remote can be used, it returns only when the own log has answered, as without
        hedging. Raises the exception of an append that failed because of a programming error.
        """
        flight = Flight(pendings, partition, self._now_s())
        chaos = self._route.topic.chaos
        if chaos.mode is not ChaosMode.DISABLED and self.decision.has_remote:
            dcs = [path.name for path in self.decision.paths]
            flight.strikes = roll(chaos, dcs, self._fallback.rng)
        waiting = self._waiting[flight] = _Waiting()
        try:
            self._follow(self.decision.begin(flight))
            self._step(flight, waiting)
            await waiting.released.wait()
        finally:
            # Appends that still run will end: a log limits their time.
            del self._waiting[flight]
            self._follow(self.decision.leave(flight))
        if waiting.error is not None:
            raise waiting.error

    def hurry(self) -> None:
        """Do at once what is due, because overdue publishes are about to be answered."""
        for flight, waiting in list(self._waiting.items()):
            self._step(flight, waiting)

    def _step(self, flight: Flight, waiting: _Waiting) -> None:
        """Do what is due now."""
        now_s = self._now_s()
        if waiting.error is None and not flight.is_over and now_s >= flight.wake_s:
            for path in self.decision.paths:
                path.check(now_s)
            self._follow(self.decision.look(flight, now_s))
        self._release(flight, waiting)

    def _release(self, flight: Flight, waiting: _Waiting) -> None:
        """Let the producer continue, or set the time to look again."""
        is_over = flight.is_over
        may_end = not waiting.own_appends or flight.went_remote or self.decision.has_remote
        if waiting.error or (is_over and may_end):
            waiting.released.set()
            return
        if is_over:
            flight.wake_s = self._now_s() + _RELEASE_POLL_S
        if flight.wake_s < self._next_s:
            self._is_sooner.set()

    async def _watch(self) -> None:
        """Check the flights that are due. One timer serves all flights, and most end before it
        fires.
        """
        while True:
            self._next_s = min((flight.wake_s for flight in self._waiting), default=math.inf)
            with trio.move_on_after(max(self._next_s - self._now_s(), _WAKE_MIN_S)):
                await self._is_sooner.wait()
            self._is_sooner = trio.Event()
            for flight, waiting in list(self._waiting.items()):
                if flight.wake_s <= self._now_s():
                    self._step(flight, waiting)

    # Following the orders.

    def _follow(self, orders: Orders) -> None:
        asked: dict[Remote, None] = {}
        for order in orders:
            if isinstance(order, Told):
                found = [each for attempts in order.some for each in attempts.verdict()]
                pendings = [attempts.pending for attempts in order.some]
                self._settle(order.dc, pendings, found, order.took_s)
                self._wake(dict.fromkeys([attempts.flight for attempts in order.some]))
                continue
            remote = self._remotes.get(order.path)
            if remote is None:
                self._begin_own(order)
                continue
            assert order.some is not None, "only the own log is sent a whole flight"
            assert order.path.partitions is not None, "not usable before its partitions are known"
            remote.used.set()
            asked[remote] = None
            for attempts in order.some:
                remote.batcher.add(attempts)
        for remote in asked:
            self._start(remote)

    def _opened(self, path: Path, now_s: float) -> None:
        self._follow(self.decision.opened(path, now_s))
        self._wake(self._waiting)

    def _wake(self, flights: Iterable[Flight]) -> None:
        for flight in flights:
            if flight in self._waiting:
                self._release(flight, self._waiting[flight])

    def _ended(
        self, path: Path, some: Sequence[Attempts], found: Sequence[Outcome], took_s: float
    ) -> None:
        self._follow(self.decision.ended(path, some, found, self._now_s(), took_s))

    # The own log. Appends run in the node's nursery.

    def _begin_own(self, send: Send) -> None:
        """Append the whole flight, or the messages named."""
        pendings = send.flight.pendings
        if send.some is not None:
            pendings = [attempts.pending for attempts in send.some]
            for attempts in send.some:
                attempts.began(send.path.name)
        waiting = self._waiting[send.flight]
        waiting.own_appends += 1
        # Made at once: a message that is answered meanwhile loses its body.
        records = self._records(pendings, send.path.name, Via.LOCAL.value)
        self._fallback.nursery.start_soon(self._append_to_own, send, pendings, records, waiting)

    async def _append_to_own(
        self, send: Send, pendings: Sequence[Pending], records: Sequence[Record], waiting: _Waiting
    ) -> None:
        path, flight = send.path, send.flight
        sent = path.send(len(records), self._now_s())
        found = await self._call(path, flight.partition, pendings, records, [flight])
        took_s = self._now_s() - sent.sent_s
        waiting.own_appends -= 1
        is_stored = stored_count(found) == len(records)
        if is_stored and send.some is None and self.decision.stored(flight):
            self._settle(path.name, pendings, found, took_s)
        else:
            some = send.some if send.some is not None else self.decision.attempts(flight)
            self._ended(path, some, found, took_s)
        path.ended(sent, found, self._now_s())
        self._wake([flight])

    # The remotes.

    async def follow(self) -> None:
        """Check the flights that are due, and keep the remotes' partitions up to date, until
        cancelled.
        """
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch)
                for remote in self._remotes.values():
                    nursery.start_soon(self._look_up, remote)
        finally:
            for path in self.decision.paths:
                path.leave()

    async def _look_up(self, remote: Remote) -> None:
        """Look up the remote's number of partitions, and later again whenever the remote is
        used.
        """
        path = remote.path
        delay_s = _LOOKUP_FIRST_S
        while True:
            with suppress(LogUnavailable):
                settings = await path.dc.log.topics.describe(self._route.log_topic)
                if settings is not None:
                    remote.batcher.grow(settings.partitions)
                    path.partitions = remote.batcher.partitions
                    await trio.sleep(_LOOK_AGAIN_S)
                    remote.used = trio.Event()
                    await remote.used.wait()
                    continue
            await trio.sleep(delay_s)
            delay_s = min(delay_s * 2, _LOOKUP_MAX_S)

    def _start(self, remote: Remote) -> None:
        """Start the appends to the remote that can start now."""
        batcher, dc = remote.batcher, remote.path.name
        while (batch := batcher.next_batch(self._now_s())) is not None:
            for attempts in batch.items:
                if attempts.is_open:
                    attempts.joins_kept()
            batch.drop_answered()
            if not batch.items:
                batcher.release(batch)
                continue
            for attempts in batch.items:
                attempts.began(dc)
            # Made at once: a message that is answered meanwhile loses its body.
            records = self._records_of(dc, batch.items)
            self._fallback.nursery.start_soon(self._append_remotely, remote, batch, records)

    def _records_of(self, dc: str, some: Sequence[Attempts]) -> Sequence[Record]:
        vias = {attempts.via for attempts in some}
        if len(vias) == 1:
            return self._records([attempts.pending for attempts in some], dc, vias.pop())
        made = [self._records([attempts.pending], dc, attempts.via) for attempts in some]
        return [record for records in made for record in records]

    async def _append_remotely(
        self, remote: Remote, batch: PartitionBatch[Attempts], records: Sequence[Record]
    ) -> None:
        """Append one batch to a remote log, and start the batches that follow."""
        path, some = remote.path, batch.items
        flights = dict.fromkeys([attempts.flight for attempts in some])
        pendings = [attempts.pending for attempts in some]
        sent = path.send(len(records), self._now_s())
        found = await self._call(path, batch.partition, pendings, records, list(flights))
        self._ended(path, some, found, self._now_s() - sent.sent_s)
        path.ended(sent, found, self._now_s())
        self._wake(flights)
        remote.batcher.release(batch)
        self._start(remote)

    async def _call(
        self,
        path: Path,
        partition: int,
        pendings: Sequence[Pending],
        records: Sequence[Record],
        flights: Sequence[Flight],
    ) -> Sequence[Outcome]:
        """Append, after applying the strikes of a chaos experiment.

        An unexpected exception is stored for the producers that wait, which raise it to their
        supervisors; raised here, it would end all topics.
        """
        route, started_s = self._route, self._now_s()
        strikes = [flight.strikes[path.name] for flight in flights if path.name in flight.strikes]
        if strikes:
            await trio.sleep(max([strike.delay_s for strike in strikes]))
            # Messages answered meanwhile need not be stored a second time.
            is_over = all(each.is_done for flight in flights for each in flight.pendings)
            if is_over or any(strike.fails for strike in strikes):
                return [_CHAOS] * len(records)
        result = await outcome.acapture(
            path.dc.log.append, route.log_topic, partition, records, route.topic.ack
        )
        if isinstance(result, outcome.Error) and isinstance(result.error, Exception):
            _logger.error("An append to %s failed", path.name, exc_info=result.error)
            for flight in flights:
                if flight in self._waiting:
                    self._waiting[flight].error = result.error
            return [UnknownRecord(f"the append failed: {result.error!r}")] * len(records)
        found: Sequence[Outcome] = result.unwrap()
        route.answered(pendings, path.name, partition, found, self._now_s() - started_s)
        return found
