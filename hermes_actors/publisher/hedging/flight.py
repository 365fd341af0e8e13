"""One batch on its way, and what each of its pendings has tried so far. Pure."""

import math
from collections.abc import Sequence

from msgspec import Struct

from hermes_actors.fallback.account import Cause
from hermes_actors.fallback.chaos import Strike
from hermes_actors.log.base import Outcome, RefusedRecord, Stored, UnavailableRecord, UnknownRecord
from hermes_actors.model.message import Via
from hermes_actors.model.partitioner import partition_of
from hermes_actors.publisher.pending import Pending

NO_ANSWER = "no acknowledgement in time"


class Flight(Struct, eq=False):
    """A batch that the producer waits for.

    `attempts` is None as long as the first append concerns all of it and nothing else was tried,
    which is nearly always. `is_told`: the fate of all was told at once. `is_probe`: it went to the
    own log though that does not work, to find out. `strikes` are those of a chaos experiment, by
    datacentre. At `wake_s` it has to be looked at again.
    """

    pendings: Sequence[Pending]
    partition: int
    sent_s: float
    wake_s: float = -math.inf
    attempts: "list[Attempts] | None" = None
    strikes: dict[str, Strike] = {}
    is_told: bool = False
    is_probe: bool = False
    went_remote: bool = False

    @property
    def is_over(self) -> bool:
        """True when the fate of each message is known, or somebody else's business."""
        if self.is_told:
            return True
        if self.attempts is None:
            return all(pending.is_done for pending in self.pendings)
        return not any(attempts.is_open for attempts in self.attempts)


class Attempts(Struct, eq=False):
    """The datacentres that one pending was sent to.

    `tried` has each with the reason why it is not known to be there, "" while there is none;
    `unanswered` counts the messages that have no answer yet there, `queued` those of them that wait
    for their turn, `unknown` those that nobody knows of. At `due_s` another one is asked.
    """

    pending: Pending
    flight: Flight
    tried: dict[str, str] = {}
    unanswered: dict[str, int] = {}
    queued: dict[str, int] = {}
    unknown: dict[str, int] = {}
    outcomes: list[Outcome | None] = []
    cause: Cause = Cause.HEDGE
    is_stored: bool = False
    is_told: bool = False
    was_refused: bool = False
    due_s: float = math.inf

    def __post_init__(self) -> None:
        self.outcomes = [None] * self.pending.count
        self.is_told = self.flight.is_told

    @property
    def count(self) -> int:
        """How many messages it is."""
        return self.pending.count

    @property
    def is_open(self) -> bool:
        """True while somebody waits for it."""
        return not (self.pending.is_done or self.is_told)

    @property
    def latest(self) -> str:
        """The datacentre that it was sent to last, "" before the first."""
        return next(reversed(self.tried), "")

    @property
    def is_idle(self) -> bool:
        """True while it is waited for, and all datacentres that it was sent to have failed it."""
        return self.is_open and bool(self.tried) and not self.unanswered

    @property
    def is_running(self) -> bool:
        """True while some append of it runs. What only waits for its turn never begins once it is
        done, and nobody answers then.
        """
        return any(count > self.queued.get(dc, 0) for dc, count in self.unanswered.items())

    @property
    def via(self) -> str:
        """The way of its records, as they say it: HEDGE or FALLBACK."""
        is_second = self.cause in (Cause.HEDGE, Cause.RESCUE, Cause.PROBE)
        return (Via.HEDGE if is_second else Via.FALLBACK).value

    def joins_kept(self) -> bool:
        """True: an older message of its key waits in the spool, and it has just been put behind
        that one; what came before it in its batch and waits for the same was put there first.
        """
        pending = self.pending
        spool = pending.route.spool
        if spool is None or pending.is_done or not pending.is_behind(spool):
            return False
        for each in self.flight.attempts or ():
            if each.is_open and each.pending.is_behind(spool):
                each.pending.join_kept()
            if each is self:
                break
        return True

    def sent(self, dc: str) -> None:
        """Record that it is given to this datacentre."""
        self.tried[dc] = ""
        self.unanswered[dc] = self.count

    def queue(self, dc: str, count: int) -> None:
        """Record that so many of its messages wait for their turn there; less than 0: it came."""
        self.queued[dc] = self.queued.get(dc, 0) + count

    def learn(self, dc: str, places: Sequence[int], outcomes: Sequence[Outcome]) -> int:
        """Record the outcomes there of an append of its messages at `places`; return how many of
        these were stored elsewhere already.
        """
        again = 0
        for place, new in zip(places, outcomes, strict=True):
            old = self.outcomes[place]
            if old is None or _RANKS[type(new)] > _RANKS[type(old)]:
                self.outcomes[place] = new
            if not isinstance(new, Stored):
                self.tried[dc] = new.reason
            elif isinstance(old, Stored):
                again += 1
        left = self.unanswered.pop(dc, 0) - len(places)
        if left > 0:
            self.unanswered[dc] = left
        self.is_stored = all(type(each) is Stored for each in self.outcomes)
        return again

    def verdict(self) -> list[Outcome]:
        """One outcome for each message. What is not stored names each datacentre and its reason,
        and is unknown as long as some datacentre has not answered.
        """
        if len(self.tried) < 2 and not self.unanswered:
            return [each or UnavailableRecord("not sent") for each in self.outcomes]
        reason = ", ".join(f"[{dc}: {why or NO_ANSWER}]" for dc, why in self.tried.items())
        return [self._judged(each, reason) for each in self.outcomes]

    def _judged(self, outcome: Outcome | None, reason: str) -> Outcome:
        if isinstance(outcome, Stored):
            return outcome
        if self.unanswered or outcome is None:
            return UnknownRecord(reason)
        return type(outcome)(reason)


_RANKS: dict[type, int] = {RefusedRecord: 0, UnavailableRecord: 1, UnknownRecord: 2, Stored: 3}
"""Which of two outcomes says what became of a message."""


class Part(Struct, eq=False):
    """The messages of a pending, at `places` in it, that go to one partition."""

    attempts: Attempts
    key: bytes | None
    places: Sequence[int]

    @property
    def count(self) -> int:
        """How many messages it is."""
        return len(self.places)

    @property
    def body_bytes(self) -> int:
        """The bytes of their bodies, estimated as their share of the pending's."""
        return self.attempts.pending.body_bytes * self.count // self.attempts.count

    @property
    def is_done(self) -> bool:
        """True when nothing more is begun for it."""
        return not self.attempts.is_open

    @property
    def is_whole(self) -> bool:
        """True when it is all messages of the pending."""
        return self.count == self.attempts.count


def whole(attempts: Attempts) -> Part:
    """All messages of a pending."""
    return Part(attempts, attempts.pending.key, range(attempts.count))


def parts_of(attempts: Attempts, partitions: int) -> list[Part]:
    """A pending in parts, one for each of so many partitions that its messages' keys lead to.

    A datacentre may have another number of partitions than the own one: then the keys of a batch,
    which share a partition at home, part there.
    """
    keys = attempts.pending.keys
    if keys is None:
        return [whole(attempts)]
    known = {key: partition_of(key, partitions) for key in set(keys) if key is not None}
    places: dict[int | None, list[int]] = {}
    for at, key in enumerate(keys):
        places.setdefault(None if key is None else known[key], []).append(at)
    return [Part(attempts, keys[where[0]], where) for where in places.values()]
