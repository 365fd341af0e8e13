"""One batch in flight, and the datacentres that each of its pendings has tried. Pure."""

import math
from collections.abc import Sequence

from msgspec import Struct, field

from hermes_actors.fallback.budget import Cause
from hermes_actors.fallback.chaos import Strike
from hermes_actors.log.base import Outcome, RefusedRecord, Stored, UnavailableRecord, UnknownRecord
from hermes_actors.model.message import Via
from hermes_actors.publisher.pending import Pending

NO_ANSWER = "no acknowledgement in time"


class Flight(Struct, eq=False):
    """A batch that its producer waits for.

    `attempts` is None while the first append carries all of it and nothing else was tried, which is
    the common case. `is_told`: the fate of all was reported at once. `is_probe`: it went to the own
    log although that log's breaker is open. `strikes` are those of a chaos experiment, by
    datacentre. It is looked at again at `wake_s`.
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
        """True when the fate of each message is known, or another part has taken it over."""
        if self.is_told:
            return True
        if self.attempts is None:
            return all(pending.is_done for pending in self.pendings)
        return not any(attempts.is_open for attempts in self.attempts)


class Attempts(Struct, eq=False):
    """The datacentres that one pending was sent to; the items of a remote's batches.

    `tried` maps each datacentre to the reason why the message is not known to be stored there;
    empty while there is none. `queued` are the datacentres whose append has not begun, `running`
    those whose append has. The next datacentre is asked at `due_s`. `unknown` counts, by
    datacentre, the messages that may be stored there.
    """

    pending: Pending
    flight: Flight
    tried: dict[str, str] = {}
    queued: set[str] = field(default_factory=set)
    running: set[str] = field(default_factory=set)
    unknown: dict[str, int] = {}
    outcomes: list[Outcome | None] = []
    cause: Cause = Cause.HEDGE
    is_told: bool = False
    was_refused: bool = False
    due_s: float = math.inf

    def __post_init__(self) -> None:
        self.outcomes = [None] * self.pending.count
        self.is_told = self.flight.is_told

    @property
    def count(self) -> int:
        """The number of its messages."""
        return self.pending.count

    @property
    def key(self) -> bytes | None:
        """The key that all of its messages share."""
        return self.pending.key

    @property
    def body_bytes(self) -> int:
        """The bytes of its messages' bodies."""
        return self.pending.body_bytes

    @property
    def is_open(self) -> bool:
        """True while its publisher waits for an answer."""
        return not (self.pending.is_done or self.is_told)

    @property
    def is_done(self) -> bool:
        """True when no further append may begin."""
        return not self.is_open

    @property
    def is_stored(self) -> bool:
        """True when each of its messages is stored in some datacentre."""
        return all(type(each) is Stored for each in self.outcomes)

    @property
    def latest(self) -> str:
        """The datacentre that it was sent to last; empty string before the first."""
        return next(reversed(self.tried), "")

    @property
    def via(self) -> str:
        """The `via` of its records: HEDGE or FALLBACK."""
        is_second = self.cause in (Cause.HEDGE, Cause.RESCUE, Cause.PROBE)
        return (Via.HEDGE if is_second else Via.FALLBACK).value

    def joins_kept(self) -> bool:
        """Spool it if an older message of its key is in the spool. True if it is done then."""
        pending, spool = self.pending, self.pending.route.spool
        if spool is None or pending.is_done or not pending.is_behind(spool):
            return False
        pending.join_kept()
        return True

    def sent(self, dc: str) -> None:
        """Record that it waits for an append to this datacentre."""
        self.tried[dc] = ""
        self.queued.add(dc)

    def began(self, dc: str) -> None:
        """Record that its append to this datacentre has begun."""
        self.queued.discard(dc)
        self.running.add(dc)

    def learn(self, dc: str, outcomes: Sequence[Outcome]) -> int:
        """Record how its append there ended. Returns how many messages are now stored more than
        once.
        """
        again = 0
        for place, new in enumerate(outcomes):
            old = self.outcomes[place]
            if old is None or _RANKS[type(new)] > _RANKS[type(old)]:
                self.outcomes[place] = new
            if not isinstance(new, Stored):
                self.tried[dc] = new.reason
            elif isinstance(old, Stored):
                again += 1
        self.running.discard(dc)
        return again

    def verdict(self) -> list[Outcome]:
        """One outcome for each message. An outcome other than Stored names each datacentre with its
        reason, and is unknown while a datacentre has not answered.
        """
        waits = bool(self.queued or self.running)
        if len(self.tried) < 2 and not waits:
            return [each or UnavailableRecord("not sent") for each in self.outcomes]
        reason = ", ".join(f"[{dc}: {why or NO_ANSWER}]" for dc, why in self.tried.items())
        return [self._judged(each, reason, waits=waits) for each in self.outcomes]

    def _judged(self, outcome: Outcome | None, reason: str, *, waits: bool) -> Outcome:
        if isinstance(outcome, Stored):
            return outcome
        if waits or outcome is None:
            return UnknownRecord(reason)
        return type(outcome)(reason)


_RANKS: dict[type, int] = {RefusedRecord: 0, UnavailableRecord: 1, UnknownRecord: 2, Stored: 3}
"""The outcome with the higher rank decides."""
