"""Stores a topic's batches in the own datacentre, and in another one when that takes too long.

Each message's fate is told once: stored as soon as any datacentre has acknowledged it, or failed
when none is left to ask or its time is up. What still runs then runs on, and is only counted.
"""

import logging
from collections.abc import Callable, Iterable, Sequence

import outcome
import trio
from msgspec import Struct, field

from hermes_actors.fallback.account import Account, OwnAppend
from hermes_actors.fallback.chaos import Strike, roll
from hermes_actors.fallback.decision import Decision, Joins, Orders, Send, Told
from hermes_actors.fallback.flight import Attempts, Flight, Item, Part, whole
from hermes_actors.fallback.node import Fallback
from hermes_actors.fallback.remote_queue import Records, RemoteQueue
from hermes_actors.fallback.remotes import Path
from hermes_actors.log.base import (
    LogUnavailable,
    Outcome,
    RefusedRecord,
    UnavailableRecord,
    UnknownRecord,
    stored_count,
)
from hermes_actors.model.message import Via
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack, Chaos, ChaosMode

_logger = logging.getLogger(__name__)

_RELEASE_POLL_S = 0.05
_WAKE_MIN_S = 0.0002
_LOOKUP_MAX_S = 0.1
_CHAOS = UnavailableRecord("a chaos experiment")

Settle = Callable[[str, Sequence[Item], Sequence[Outcome], float], None]
"""Told once of each item: the datacentre, items, an outcome for each of their messages, in order,
and how long the append took in seconds."""


class _Waiting(Struct, eq=False):
    """What the producer of a flight waits for. `error`: what an append failed with when it should
    not; `appends`: those to the own log that run.
    """

    changed: trio.Event = field(default_factory=trio.Event)
    error: BaseException | None = None
    appends: dict[OwnAppend, None] = {}


class Hedge:
    """One topic's. `name` is `group.topic`, `topic` what the logs call it.

    `records` makes the records of some items, which are sent then, with the `via` that it is given;
    `limit_s` is how long after its `started_s` an item has its answer. Run `follow` beside it.
    """

    def __init__(
        self,
        fallback: Fallback,
        name: str,
        topic: str,
        *,
        ack: Ack,
        records: Records,
        settle: Settle,
        limit_s: float,
        chaos: Chaos | None = None,
        joins: Joins = lambda _item, _older: False,
        records_max: int = 1_000,
        bytes_max: int = 1_000_000,
    ) -> None:
        self._fallback = fallback
        self._clock = fallback.clock
        self._topic = topic
        self._ack = ack
        self._chaos = chaos or Chaos()
        self._records = records
        self._settle = settle
        self._decision = Decision(
            fallback.local.path(ack),
            [dc.path(ack) for dc in fallback.remotes],
            fallback.config,
            fallback.measures,
            Account(name, fallback.measures),
            limit_s=limit_s,
            joins=joins,
        )
        self._queues = {
            path: RemoteQueue(
                path,
                topic,
                fallback.nursery,
                self._clock,
                append=self._append_remotely,
                records=records,
                joins=joins,
                on_looked_up=lambda: self._follow(self._decision.looked_up(self._now_s())),
                records_max=records_max,
                bytes_max=bytes_max,
            )
            for path in self._decision.remotes
        }
        for path in self._decision.paths:
            path.on_open = self._opened
        self._waiting: dict[Flight, _Waiting] = {}

    @property
    def is_useful(self) -> bool:
        """Some remote could be used now."""
        return self._decision.has_remote

    def set_local_known(self, is_known: bool) -> None:
        """Whether the own log has told how many partitions the topic has; while it has not, only
        the others are used.
        """
        self._decision.is_own_known = is_known

    def change(self, ack: Ack, chaos: Chaos) -> None:
        """The topic was changed."""
        self._ack = ack
        self._chaos = chaos

    async def follow(self) -> None:
        """Keep what is known of the remotes' topics up to date, until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                for queue in self._queues.values():
                    nursery.start_soon(queue.follow)
        finally:
            for path in self._decision.paths:
                path.leave()

    async def append(self, items: Sequence[Item], partition: int) -> None:
        """Store a batch; returns when each item's fate was told, or is the business of another.

        While no remote can be used it returns only when the own log has answered, as without
        hedging. Raises what a log's append failed with, if that was a programmer's error.
        """
        flight = Flight(items, partition, self._now_s())
        if self._chaos.mode is not ChaosMode.DISABLED and self._decision.has_remote:
            dcs = [path.name for path in self._decision.paths]
            flight.strikes = roll(self._chaos, dcs, self._fallback.rng)
        waiting = self._waiting[flight] = _Waiting()
        try:
            self._follow(self._decision.begin(flight))
            while (wake_s := self._step(flight, waiting)) is not None:
                with trio.move_on_after(max(wake_s - self._now_s(), _WAKE_MIN_S)):
                    await waiting.changed.wait()
                waiting.changed = trio.Event()
        finally:
            del self._waiting[flight]
            # The producer goes on: what runs still belongs to nobody.
            for append in waiting.appends:
                self._fallback.losers.adopt(append)
            self._follow(self._decision.leave(flight))
        if waiting.error is not None:
            raise waiting.error

    def hurry(self) -> None:
        """Do at once what is due: somebody else is about to answer what is over."""
        for flight, waiting in list(self._waiting.items()):
            self._step(flight, waiting)

    def _now_s(self) -> float:
        return self._clock.monotonic_s()

    def _step(self, flight: Flight, waiting: _Waiting) -> float | None:
        """Do what is due now; when to look again, None when the producer need not wait."""
        now_s = self._now_s()
        if waiting.error is not None:
            return None
        if not flight.is_over:
            if now_s < flight.wake_s:
                return flight.wake_s
            for path in self._decision.paths:
                path.check(now_s)
            self._follow(self._decision.look(flight, now_s))
            if not flight.is_over:
                return flight.wake_s
        if not waiting.appends or flight.went_remote or self._decision.has_remote:
            return None
        return now_s + _RELEASE_POLL_S

    # What was decided.

    def _follow(self, orders: Orders) -> None:
        asked: dict[RemoteQueue, None] = {}
        for order in orders:
            if isinstance(order, Told):
                found = [each for attempts in order.some for each in attempts.verdict()]
                items = [attempts.item for attempts in order.some]
                self._settle(order.dc, items, found, order.took_s)
                self._wake(dict.fromkeys([attempts.flight for attempts in order.some]))
                continue
            queue = self._queues.get(order.path)
            strike = order.flight.strikes.get(order.path.name)
            if queue is None:
                self._begin_own(order, strike)
                continue
            assert order.some is not None, "only the own log is sent a whole flight"
            if strike is None:
                queue.add(order.some)
                asked[queue] = None
            else:
                self._fallback.nursery.start_soon(self._strike_remote, queue, order.some, strike)
        for queue in asked:
            queue.start()

    def _opened(self, path: Path, now_s: float) -> None:
        self._follow(self._decision.opened(path, now_s))
        self._wake(self._waiting)

    def _wake(self, flights: Iterable[Flight]) -> None:
        for flight in flights:
            if flight in self._waiting:
                self._waiting[flight].changed.set()

    # Appends, which run in the node's nursery.

    def _begin_own(self, send: Send, strike: Strike | None) -> None:
        """Append to the own log: the whole flight, or some of it."""
        items = send.flight.items
        if send.some is not None:
            items = [attempts.item for attempts in send.some]
            for attempts in send.some:
                attempts.begun(send.path.name, attempts.count)
        append = OwnAppend(sum([item.body_bytes for item in items]))
        waiting = self._waiting[send.flight]
        waiting.appends[append] = None
        # Made at once: a message that is answered meanwhile has no body any more.
        records = None
        if strike is None:
            records = self._records(items, send.path.name, Via.LOCAL.value)
        self._fallback.nursery.start_soon(
            self._append_to_own, send, items, records, strike, append, waiting
        )

    async def _append_to_own(
        self,
        send: Send,
        items: Sequence[Item],
        records: Sequence[Record] | None,
        strike: Strike | None,
        append: OwnAppend,
        waiting: _Waiting,
    ) -> None:
        path, flight = send.path, send.flight
        count = sum([item.count for item in items])
        found: Sequence[Outcome] = [UnknownRecord("given up before the log answered")] * count
        started_s = self._now_s()
        sent = path.send(count, started_s)
        with append.scope:
            if strike is not None:
                await trio.sleep(strike.delay_s)
                # What is done by then has no body any more.
                if not (strike.fails or any(item.is_done for item in items)):
                    records = self._records(items, path.name, Via.LOCAL.value)
            if records:
                found = await self._call(path, flight.partition, records, [waiting])
            else:
                found = [_CHAOS] * count
        may_go_on = await self._may_go_on(path, found)
        took_s = self._now_s() - started_s
        self._fallback.losers.ended(append)
        del waiting.appends[append]
        is_whole = send.some is None and stored_count(found) == count
        if is_whole and self._decision.stored(flight):
            self._settle(path.name, items, found, took_s)
        else:
            some = send.some if send.some is not None else self._decision.attempts(flight)
            parts = [whole(attempts) for attempts in some]
            self._ended(path, parts, found, took_s, may_go_on=may_go_on)
        path.ended(sent, found, self._now_s(), is_given_up=append.scope.cancelled_caught)
        waiting.changed.set()

    async def _may_go_on(self, path: Path, found: Sequence[Outcome]) -> bool:
        """Whether what was refused may be tried elsewhere: this log has not got the topic (yet).

        A record that is too large is so everywhere.
        """
        if not any(type(each) is RefusedRecord for each in found):
            return True
        with trio.move_on_after(_LOOKUP_MAX_S):
            try:
                return await path.dc.log.describe_topic(self._topic) is None
            except LogUnavailable:
                return True
        return True

    async def _append_remotely(
        self, path: Path, partition: int, parts: Sequence[Part], records: Sequence[Record]
    ) -> None:
        """One batch into a remote log."""
        flights = dict.fromkeys([part.attempts.flight for part in parts])
        waiting = [self._waiting[flight] for flight in flights if flight in self._waiting]
        started_s = self._now_s()
        sent = path.send(len(records), started_s)
        found = await self._call(path, partition, records, waiting)
        self._ended(path, parts, found, self._now_s() - started_s)
        path.ended(sent, found, self._now_s())
        self._wake(flights)

    async def _strike_remote(
        self, queue: RemoteQueue, some: list[Attempts], strike: Strike
    ) -> None:
        """Send these to a remote as an experiment wants it."""
        path = queue.path
        await trio.sleep(strike.delay_s)
        if not strike.fails:
            queue.add(some)
            queue.start()
            return
        parts = [whole(attempts) for attempts in some]
        found = [_CHAOS] * sum([part.count for part in parts])
        sent = path.send(len(found), self._now_s())
        self._ended(path, parts, found, strike.delay_s)
        path.ended(sent, found, self._now_s())

    def _ended(
        self,
        path: Path,
        parts: Sequence[Part],
        found: Sequence[Outcome],
        took_s: float,
        *,
        may_go_on: bool = True,
    ) -> None:
        now_s = self._now_s()
        self._follow(self._decision.ended(path, parts, found, now_s, took_s, may_go_on=may_go_on))

    async def _call(
        self, path: Path, partition: int, records: Sequence[Record], waiting: Sequence[_Waiting]
    ) -> Sequence[Outcome]:
        """Append; a failure that is no outcome is raised by the producers that wait for it, whose
        supervisor knows what to do; here it would end all topics.
        """
        result = await outcome.acapture(
            path.dc.log.append, self._topic, partition, records, self._ack
        )
        if isinstance(result, outcome.Error) and isinstance(result.error, Exception):
            _logger.error("An append to %s failed", path.name, exc_info=result.error)
            for each in waiting:
                each.error = result.error
            return [UnknownRecord(f"the append failed: {result.error!r}")] * len(records)
        return result.unwrap()
