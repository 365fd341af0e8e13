"""What became of each message, told once; and what is only counted, because it came later."""

from collections.abc import Callable, Iterable, Sequence

from hermes_actors.fallback.flight import Flight, Flying, Item
from hermes_actors.fallback.measures import FallbackMeasures
from hermes_actors.log.base import Outcome, RefusedRecord, UnknownRecord

Settle = Callable[[str, Sequence[Item], Sequence[Outcome], float], None]
"""Told once of each item: the datacentre, items, an outcome for each of their messages, in order,
and how long the append took in seconds."""


class Verdicts:
    """Those of one topic, `group.topic`."""

    def __init__(self, topic: str, measures: FallbackMeasures, settle: Settle) -> None:
        self._topic = topic
        self._measures = measures
        self._settle = settle

    def all_stored(self, flight: Flight, dc: str, found: Sequence[Outcome], took_s: float) -> None:
        """The first append of a flight, that of all its items, has stored everything."""
        self._count_late(dc, flight.items)
        flight.is_reported = True
        self._settle(dc, flight.items, found, took_s)

    def receive(
        self,
        dc: str,
        flyings: Sequence[Flying],
        found: Sequence[Outcome],
        took_s: float,
        *,
        may_go_on: bool = True,
    ) -> list[Flying]:
        """An append of these has ended: tell what is known now; those for which another datacentre
        may be asked. `may_go_on` False: what is refused here is refused everywhere.
        """
        told: list[Flying] = []
        failed: list[Flying] = []
        at = 0
        for flying in flyings:
            own = found[at : at + flying.count]
            at += flying.count
            was_stored = flying.is_stored
            again = flying.learn(dc, own)
            self._count(flying, dc, own, again, was_stored)
            if flying.is_reported:
                continue
            if flying.is_stored:
                self._count_late(dc, [flying.item])
                told.append(flying)
            elif not may_go_on and all(type(each) is RefusedRecord for each in own):
                told.append(flying)
            else:
                failed.append(flying)
        self.report(dc, told, took_s)
        return failed

    def report(self, dc: str, flyings: Sequence[Flying], took_s: float = 0.0) -> None:
        """Tell the fate of these."""
        if not flyings:
            return
        for flying in flyings:
            flying.is_reported = True
        found = [each for flying in flyings for each in flying.verdict()]
        self._settle(dc, [flying.item for flying in flyings], found, took_s)
        for flight in dict.fromkeys([flying.flight for flying in flyings]):
            flight.changed.set()

    def _count(
        self, flying: Flying, dc: str, own: Sequence[Outcome], again: int, was_stored: bool
    ) -> None:
        measures = self._measures
        if again:
            measures.duplicated(self._topic, flying.cause).add(again)
        unknown = sum([type(each) is UnknownRecord for each in own])
        if unknown:
            flying.unknown[dc] = unknown
        if flying.is_stored:
            for where, count in flying.unknown.items():
                measures.unknown_copies(where).add(count)
            flying.unknown.clear()
        if flying.is_stored and flying.is_reported and not was_stored:
            measures.late(dc).add(flying.count)

    def _count_late(self, dc: str, items: Iterable[Item]) -> None:
        late = sum([item.count for item in items if item.is_done])
        if late:
            self._measures.late(dc).add(late)
