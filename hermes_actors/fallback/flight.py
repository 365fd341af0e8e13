"""One batch on its way, and what each of its messages has tried so far."""

import math
from collections.abc import Iterator, Sequence
from typing import Protocol

import trio

from hermes_actors.fallback.chaos import Strike
from hermes_actors.fallback.losers import Losing
from hermes_actors.fallback.measures import Cause
from hermes_actors.log.base import Outcome, RefusedRecord, Stored, UnavailableRecord, UnknownRecord
from hermes_actors.model.message import Via


class Item(Protocol):
    """What is published: one message, or `count` that stay together.

    `is_done`: it is answered or kept elsewhere, and nothing more is begun for it. `started_s` is
    when its time limit began.
    """

    is_done: bool
    key: bytes | None
    body_bytes: int
    count: int
    started_s: float


class Flight:
    """A batch that the producer waits for.

    `flyings` is None as long as the first append concerns all of it and nothing else was tried,
    which is nearly always. `appends` are those to the own log that run. `is_reported`: the fate of
    all was told at once. `error` is what an append failed with when it should not.
    """

    __slots__ = (
        "appends",
        "changed",
        "error",
        "flyings",
        "is_reported",
        "items",
        "partition",
        "sent_s",
        "strikes",
        "wake_s",
        "went_remote",
    )

    def __init__(self, items: Sequence[Item], partition: int, now_s: float) -> None:
        self.items = items
        self.partition = partition
        self.sent_s = now_s
        self.wake_s = now_s
        self.flyings: list[Flying] | None = None
        self.strikes: dict[str, Strike] = {}
        self.changed = trio.Event()
        self.error: BaseException | None = None
        self.appends: dict[Losing, None] = {}
        self.is_reported = False
        self.went_remote = False

    @property
    def is_over(self) -> bool:
        """The fate of each message is known, or somebody else's business."""
        if self.is_reported:
            return True
        if self.flyings is None:
            return all(item.is_done for item in self.items)
        return not any(flying.is_open for flying in self.flyings)

    def fly(self, dc: str | None) -> "list[Flying]":
        """Look at the items one by one; `dc`: where all of them were sent."""
        flyings = self.flyings = [Flying(item, self) for item in self.items]
        for flying in flyings:
            flying.sent_s = self.sent_s
            flying.is_reported = self.is_reported
            if dc is not None:
                flying.tried[dc] = ""
                flying.running[dc] = None
        return flyings


class Flying:
    """One item that more than the first append is about.

    `tried` are the datacentres it was sent to, each with the reason why it is not known to be
    there ("" while that is open); `running` are those whose append has begun and not ended,
    `unknown` those where so many of its messages may be or not.
    """

    __slots__ = (
        "body_bytes",
        "cause",
        "count",
        "due_s",
        "end_s",
        "flight",
        "is_reported",
        "is_stored",
        "item",
        "key",
        "outcomes",
        "rescue_s",
        "running",
        "sent_s",
        "tried",
        "unknown",
        "was_refused",
    )

    def __init__(self, item: Item, flight: Flight) -> None:
        self.item = item
        self.flight = flight
        self.key = item.key
        self.count = item.count
        self.body_bytes = item.body_bytes
        self.tried: dict[str, str] = {}
        self.running: dict[str, None] = {}
        self.unknown: dict[str, int] = {}
        self.outcomes: list[Outcome] = []
        self.cause = Cause.HEDGE
        self.is_stored = False
        self.is_reported = False
        self.was_refused = False
        self.sent_s = 0.0
        self.due_s = self.rescue_s = self.end_s = math.inf

    @property
    def is_done(self) -> bool:
        """Nothing more is begun for it."""
        return self.item.is_done or self.is_reported

    @property
    def is_open(self) -> bool:
        """Somebody waits for it."""
        return not (self.item.is_done or self.is_reported)

    @property
    def older(self) -> Iterator[Item]:
        """What came before it in its batch and is still waited for."""
        for flying in self.flight.flyings or ():
            if flying is self:
                return
            if flying.is_open:
                yield flying.item

    @property
    def is_probing(self) -> bool:
        """It was sent where it was to find out whether that works."""
        return self.cause is Cause.PROBE and len(self.tried) == 1

    @property
    def went_remote(self) -> bool:
        """It was sent to another datacentre than the own, or to none but that one."""
        return bool(self.tried) and self.flight.went_remote

    @property
    def is_underway(self) -> bool:
        """An append of it runs, or it stands in a remote's queue."""
        return bool(self.running) or not all(self.tried.values())

    @property
    def is_idle(self) -> bool:
        """It is waited for, and where it was sent it has failed."""
        return self.is_open and bool(self.tried) and not self.is_underway

    @property
    def via(self) -> str:
        """How a record of it took its way."""
        is_second = self.cause in (Cause.HEDGE, Cause.RESCUE, Cause.PROBE)
        return (Via.HEDGE if is_second else Via.FALLBACK).value

    def learn(self, dc: str, outcomes: Sequence[Outcome]) -> int:
        """What an append in this datacentre came to; how many were stored elsewhere already."""
        self.running.pop(dc, None)
        if not self.outcomes:
            self.outcomes = list(outcomes)
            again = 0
        else:
            again = sum(
                [
                    type(old) is Stored and type(new) is Stored
                    for old, new in zip(self.outcomes, outcomes, strict=True)
                ]
            )
            self.outcomes = [
                max(old, new, key=_rank) for old, new in zip(self.outcomes, outcomes, strict=True)
            ]
        self.is_stored = all(type(each) is Stored for each in self.outcomes)
        for each in outcomes:
            if not isinstance(each, Stored):
                self.tried[dc] = each.reason
        return again

    def verdict(self) -> list[Outcome]:
        """One outcome for each message. What is not stored names each datacentre and its reason,
        and is unknown as long as an append of it runs.
        """
        if self.is_stored or (len(self.tried) == 1 and not self.running):
            return self.outcomes or [UnavailableRecord("not sent")] * self.count
        reason = ", ".join(
            f"[{dc}: {why or 'no acknowledgement in time'}]" for dc, why in self.tried.items()
        )
        merged = self.outcomes or [UnavailableRecord(reason)] * self.count
        return [self._failure(each, reason) for each in merged]

    def _failure(self, outcome: Outcome, reason: str) -> Outcome:
        if isinstance(outcome, Stored):
            return outcome
        if self.running:
            return UnknownRecord(reason)
        return type(outcome)(reason)


def _rank(outcome: Outcome) -> int:
    """Which of two outcomes says what became of a message."""
    return _RANKS[type(outcome)]


_RANKS: dict[type, int] = {RefusedRecord: 0, UnavailableRecord: 1, UnknownRecord: 2, Stored: 3}
