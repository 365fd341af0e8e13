"""One topic's appends: run in the node's nursery, learnt from, and handed on when they fail."""

import logging
from collections.abc import Callable, Sequence

import outcome
import trio

from hermes_actors.fallback.breaker import Sent
from hermes_actors.fallback.chaos import Strike
from hermes_actors.fallback.flight import Flight, Flying, Item
from hermes_actors.fallback.node import Fallback
from hermes_actors.fallback.outlet import Outlet, Records
from hermes_actors.fallback.remotes import Path
from hermes_actors.fallback.shares import Share, whole_outcomes
from hermes_actors.fallback.verdicts import Verdicts
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
from hermes_actors.model.topic import Ack

_logger = logging.getLogger(__name__)

_LOOKUP_MAX_S = 0.1
_CHAOS = UnavailableRecord("a chaos experiment")


class Appends:
    """`go_on` is given the messages that a datacentre did not take and that may go elsewhere, `fly`
    makes them of a flight whose items were all sent to the own log.
    """

    def __init__(
        self,
        fallback: Fallback,
        topic: str,
        ack: Ack,
        records: Records,
        verdicts: Verdicts,
        fly: Callable[[Flight], list[Flying]],
        go_on: Callable[[list[Flying]], None],
    ) -> None:
        self.ack = ack
        self._fallback = fallback
        self._clock = fallback.clock
        self._topic = topic
        self._records = records
        self._verdicts = verdicts
        self._fly = fly
        self._go_on = go_on

    # The own log.

    def begin_local(self, path: Path, flight: Flight, flyings: list[Flying] | None) -> None:
        """Append to the own log: the whole flight (None), or some of it."""
        name = path.dc.name
        items = flight.items if flyings is None else [flying.item for flying in flyings]
        for flying in flyings or ():
            flying.tried[name] = ""
            flying.running[name] = None
        strike = flight.strikes.get(name)
        append = LocalAppend(sum([item.body_bytes for item in items]))
        flight.appends[append] = None
        # Made at once: a message that is answered meanwhile has no body any more.
        records = self._records(items, Via.LOCAL.value) if strike is None else None
        self._fallback.nursery.start_soon(
            self._local, path, flight, flyings, items, records, append
        )

    async def _local(
        self,
        path: Path,
        flight: Flight,
        flyings: list[Flying] | None,
        items: Sequence[Item],
        records: Sequence[Record] | None,
        append: "LocalAppend",
    ) -> None:
        count = sum([item.count for item in items])
        found: Sequence[Outcome] = [UnknownRecord("given up before the log answered")] * count
        started_s = self._clock.monotonic_s()
        sent = path.send(count, started_s)
        with append.scope:
            if records is None:
                strike = flight.strikes[path.dc.name]
                await trio.sleep(strike.delay_s)
                records = self._struck(items, strike)
            if records:
                found = await self._call(path, flight.partition, records, [flight])
            else:
                found = [_CHAOS] * count
        may_go_on = await self._may_go_on(path, found)
        took_s = self._clock.monotonic_s() - started_s
        self._fallback.losers.ended(append)
        del flight.appends[append]
        name = path.dc.name
        if flyings is None and flight.flyings is None and stored_count(found) == count:
            self._verdicts.all_stored(flight, name, found, took_s)
        else:
            concerned = self._fly(flight) if flyings is None else flyings
            self._go_on(self._verdicts.receive(name, concerned, found, took_s, may_go_on=may_go_on))
        self._learn(path, sent, found, is_given_up=append.scope.cancelled_caught)
        flight.changed.set()

    def _struck(self, items: Sequence[Item], strike: Strike) -> Sequence[Record]:
        """What is appended after an experiment's delay: all, or nothing when any is done."""
        if strike.fails or any(item.is_done for item in items):
            return []
        return self._records(items, Via.LOCAL.value)

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

    # The others.

    async def remote(
        self,
        path: Path,
        partition: int,
        parts: Sequence[Flying | Share],
        records: Sequence[Record],
    ) -> None:
        """One batch into a remote log; the outlet has noted that it runs."""
        name = path.dc.name
        flyings = [part if isinstance(part, Flying) else part.flying for part in parts]
        flights = list(dict.fromkeys([flying.flight for flying in flyings]))
        started_s = self._clock.monotonic_s()
        sent = path.send(len(records), started_s)
        found = await self._call(path, partition, records, flights)
        took_s = self._clock.monotonic_s() - started_s
        ended, outcomes = whole_outcomes(parts, found)
        self._go_on(self._verdicts.receive(name, ended, outcomes, took_s))
        self._learn(path, sent, found)
        for flight in flights:
            flight.changed.set()

    def begin_struck(self, outlet: Outlet, flyings: list[Flying], strike: Strike) -> None:
        """Send these to a remote as an experiment wants it."""
        self._fallback.nursery.start_soon(self._struck_remote, outlet, flyings, strike)

    async def _struck_remote(self, outlet: Outlet, flyings: list[Flying], strike: Strike) -> None:
        path = outlet.path
        count = sum([flying.count for flying in flyings])
        await trio.sleep(strike.delay_s)
        if not strike.fails:
            outlet.send(flyings)
            return
        sent = path.send(count, self._clock.monotonic_s())
        found = [_CHAOS] * count
        self._go_on(self._verdicts.receive(path.dc.name, flyings, found, strike.delay_s))
        self._learn(path, sent, found)

    # Both.

    async def _call(
        self, path: Path, partition: int, records: Sequence[Record], flights: list[Flight]
    ) -> Sequence[Outcome]:
        """Append; a failure that is no outcome is raised by the producers that wait for it, whose
        supervisor knows what to do; here it would end all topics.
        """
        result = await outcome.acapture(
            path.dc.log.append, self._topic, partition, records, self.ack
        )
        if isinstance(result, outcome.Error) and isinstance(result.error, Exception):
            _logger.error("An append to %s failed", path.dc.name, exc_info=result.error)
            for flight in flights:
                flight.error = result.error
            return [UnknownRecord(f"the append failed: {result.error!r}")] * len(records)
        return result.unwrap()

    def _learn(
        self, path: Path, sent: Sent, found: Sequence[Outcome], *, is_given_up: bool = False
    ) -> None:
        """Let the breakers and the hedge delay know."""
        now_s = self._clock.monotonic_s()
        if is_given_up:
            path.forget(sent)
        elif stored_count(found):
            path.acknowledged(sent, now_s)
        elif all(type(each) is RefusedRecord for each in found):
            path.answered(sent, now_s)
        else:
            path.failed(sent, now_s)


class LocalAppend:
    """An append to the own log while it runs."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.scope = trio.CancelScope()

    def cancel(self) -> None:
        """Give it up."""
        self.scope.cancel()
