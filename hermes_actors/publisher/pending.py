"""The whole fate of one admitted publish: admitted, validating, queued, sent, kept, settled.

Each transition is one function, and asserts that it may happen. It is told exactly once, by
whoever is first.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.fallback.spool.spool import Spool
from hermes_actors.fallback.spool.store import SpoolUnavailable
from hermes_actors.log.base import Outcome, Stored, UnavailableRecord, UnknownRecord, stored_count
from hermes_actors.model.message import Message
from hermes_actors.model.messages import keys_of
from hermes_actors.publisher.demands import Demand
from hermes_actors.publisher.outcomes import (
    Buffered,
    Settled,
    full_behind_key,
    not_written,
    overdue,
)
from hermes_actors.publisher.route import Limits, Route

CHUNKED = -2
"""`expected_bytes` of a body whose length is not announced and need not be."""

ABSENT = -1
"""`expected_bytes` of a request with neither a length nor chunks: it is refused."""


class State(IntEnum):
    """Where a publish stands; it never goes back."""

    ADMITTED = 0  # its head has passed the checks; its body is being read
    VALIDATING = 1  # the body has come and is being checked
    QUEUED = 2  # its topic's producer has it
    SENT = 3  # a log was given it, and may store it from now on
    KEPT = 4  # the spool has it, and nothing more is begun for it
    SETTLED = 5  # it is answered


class Stage(IntEnum):
    """Which of its limits a publish runs up to: the place of that limit in `Limits`."""

    FIRST = 0
    LATE = 1
    KEPT = 2


ADMITTED, VALIDATING, QUEUED, SENT, KEPT, SETTLED = State
FIRST, LATE, LAST = Stage


class Pending:
    """The `messages` of one publish, or of a part of a batch, and what has become of them.

    `started_s` is monotonic: when its headers had been read; `started_ms` is that by the wall
    clock, 0 for a part of a batch, whose messages have it. `key` says where all of its messages
    go; `body_bytes` are those of all. `is_done`: it is answered or kept, and nothing more is begun
    for it. `is_sent`: a log was given it, so it may be stored. `keeper` is the spool that has it,
    whatever the topic has become since. `demand` is what its head asks for, until its body has
    come. `notify` is called once, synchronously, when it is answered. `limits` are the route's as
    they were when this began: what its topic becomes meanwhile changes none.

    `outcome` is that of all messages, or of the first when `outcomes` has one for each.
    """

    __slots__ = (
        "_known",
        "body_bytes",
        "count",
        "demand",
        "expected_bytes",
        "has_body",
        "id",
        "is_done",
        "is_sent",
        "keeper",
        "key",
        "limits",
        "messages",
        "notify",
        "outcome",
        "outcomes",
        "route",
        "started_ms",
        "started_s",
        "state",
    )

    def __init__(
        self,
        message_id: str,
        route: Route,
        started_s: float,
        key: bytes | None,
        expected_bytes: int,
        limits: Limits,
        notify: "Callable[[Pending], None]",
        demand: Demand | None = None,
        count: int = 1,
        started_ms: int = 0,
    ) -> None:
        self.id = message_id
        self.route = route
        self.started_s = started_s
        self.started_ms = started_ms
        self.key = key
        self.expected_bytes = expected_bytes
        self.limits = limits
        self.notify = notify
        self.demand = demand
        self.state = ADMITTED
        self.has_body = False
        self.is_done = False
        self.is_sent = False
        self.messages: Sequence[Message] = ()
        self.count = count
        self.body_bytes = 0
        self.keeper: Spool | None = None
        self.outcome: Settled | None = None
        self.outcomes: Sequence[Settled] | None = None
        # The outcomes of those messages that are not left to the spool, while it has the others.
        self._known: list[Settled | None] | None = None

    @property
    def is_answered(self) -> bool:
        """Its outcome is told."""
        return self.state == SETTLED

    @property
    def keys(self) -> Sequence[bytes | None] | None:
        """The key of each message; None when all have the same."""
        return keys_of(self.messages) if self.count > 1 else None

    # The way to a log.

    def validating(self) -> None:
        """Its body has come, and is being checked."""
        assert self.state == ADMITTED, "its body comes once"
        self.state = VALIDATING
        self.has_body = True

    def queued(self, messages: Sequence[Message], key: bytes | None, body_bytes: int) -> None:
        """It is found good, and waits for its topic's producer."""
        assert self.state == VALIDATING, "it is queued once, when it has been checked"
        self.state = QUEUED
        self.messages = messages
        self.key = key
        self.body_bytes = body_bytes
        self.demand = None

    def sent(self) -> None:
        """An append of it begins: the first one, or one to another datacentre."""
        assert self.state in (QUEUED, SENT), "nothing is begun for what is done"
        self.state = SENT
        self.is_sent = True

    def conclude(self, outcomes: Sequence[Outcome]) -> bool:
        """Its append has ended, with an outcome for each message: it is settled, or those that are
        not stored are kept, all or none. True when it was settled by this; the caller counts it,
        with others of its batch.
        """
        keeper = self.keeper
        if keeper is not None:
            keeper.concluded(self, [type(each) is Stored for each in outcomes])
        if self.state == SETTLED:
            return False
        assert self._known is None, "its fate is told once"
        if stored_count(outcomes) < self.count:
            if keeper is not None:
                self._known = [each if isinstance(each, Stored) else None for each in outcomes]
                return False
            if self._keep_left(outcomes):
                return False
        self.end(outcomes[0], outcomes if self.count > 1 else None)
        return True

    # What keeps it when no log takes it in time.

    def is_behind(self, spool: Spool) -> bool:
        """Whether older messages of any of its keys wait in the spool."""
        log_topic = self.route.log_topic
        keys = self.keys or (self.key,)
        return any(key is not None and spool.holds(log_topic, key) for key in dict.fromkeys(keys))

    def keep(self) -> bool:
        """Have the spool keep all of its messages; False when it has to be answered without."""
        if self.is_done:
            return False
        return self._keep(self.messages, self if self.is_sent else None)

    def join_kept(self) -> None:
        """Older messages of its key are kept: be kept too, or be answered that this cannot be."""
        if not self.is_done and not self.keep():
            self.settle(full_behind_key(self.route.name, was_sent=self.is_sent))

    def _keep_left(self, outcomes: Sequence[Outcome]) -> bool:
        """Keep those that a log may still take."""
        known: list[Settled | None] = [
            None if isinstance(each, UnavailableRecord | UnknownRecord) else each
            for each in outcomes
        ]
        left = [each for each, is_known in zip(self.messages, known, strict=True) if not is_known]
        if not left or not self._keep(left, None):
            return False
        self._known = known
        return True

    def _keep(self, messages: Sequence[Message], sent_as: object) -> bool:
        assert self.state in (QUEUED, SENT), "only what was found good is kept, and once"
        spool = self.route.spool
        if spool is None or not self.route.keep(spool, messages, self._written, sent_as):
            return False
        self.state = KEPT
        self.is_done = True
        self.keeper = spool
        self.route.measures.kept((self,))
        return True

    def _written(self, error: SpoolUnavailable | None) -> None:
        """The spool's disk has it, or could not take it."""
        if error is None:
            self.settle(Buffered())
        else:
            self.settle(not_written(self.route.name, error.message, was_sent=self.is_sent))

    # The end.

    def settle(self, outcome: Settled) -> bool:
        """Give all messages this outcome that have none yet, and tell the edge; False when it was
        told before.
        """
        if self.state == SETTLED:
            return False
        known = self._known
        if known is None:
            self.end(outcome)
        else:
            outcomes = [outcome if each is None else each for each in known]
            self.end(outcomes[0], outcomes)
        self.route.measures.settled((self,), self.started_s)
        return True

    def end(self, outcome: Settled, outcomes: Sequence[Settled] | None = None) -> None:
        """Its outcome is known, or that of each message; the caller counts it."""
        assert self.state != SETTLED, "it is told once"
        self.state = SETTLED
        self.is_done = True
        self.outcome = outcome
        self.outcomes = outcomes
        self.messages = ()
        self.route.tally.in_flight -= 1
        self.notify(self)

    def expire(self, stage: Stage) -> Stage | None:
        """Its time is over: 408 while the body is being read; else it is kept, or answered 503.
        What the log was not given by then never is, what it was given may yet be stored; the text
        says which. The limit that it runs up to next, None when it has been answered.
        """
        limits = self.limits
        limit_ms = limits[stage]
        if self.state == KEPT:
            if limit_ms < limits.kept_ms:
                return LAST
        elif limit_ms < limits.late_ms:
            # Some time is left for what cannot be kept.
            return LAST if self.state >= QUEUED and self.keep() else LATE
        if not self.has_body:
            self.settle(
                Refused(
                    f"The request's body was not received within {limit_ms} ms", ErrorCode.TIMEOUT
                )
            )
            return None
        self.route.hurry()
        self.settle(overdue(limit_ms, may_be_stored=self.is_sent or self.state == KEPT))
        return None
