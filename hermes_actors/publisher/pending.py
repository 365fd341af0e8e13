"""The whole fate of one admitted publish: admitted, validating, queued, sent, kept, settled; and
the route that it goes, with all that publishing to one topic needs.

Each transition is one function, and asserts that it may happen. It is told exactly once, by
whoever is first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import trio
from msgspec.structs import replace

from hermes_actors.actors.mailbox import Ref
from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.fallback.spool.format import SpoolEntry
from hermes_actors.fallback.spool.spool import Offer, Spool
from hermes_actors.fallback.spool.store import SpoolUnavailable
from hermes_actors.log.base import Outcome, Stored, UnavailableRecord, UnknownRecord, stored_count
from hermes_actors.metadata.keys import parse_log_topic
from hermes_actors.model.message import Message, Via
from hermes_actors.model.messages import keys_of
from hermes_actors.model.topic import Topic
from hermes_actors.model.trace_context import TraceContext
from hermes_actors.publisher.answers import (
    Answer,
    Buffered,
    Settled,
    answer_to,
    full_behind_key,
    not_written,
    overdue,
    status_of,
)
from hermes_actors.publisher.demands import Demand
from hermes_actors.publisher.drain import Drain
from hermes_actors.publisher.measures import TopicMeasures
from hermes_actors.schema.validation import Validation


class Limits(NamedTuple):
    """The time limits of a publish, in ms after its start: until the spool is asked, until it is
    answered that none took it, and until it is answered that the spool's disk did not. Without a
    spool all are the same.
    """

    first_ms: int
    late_ms: int
    kept_ms: int


CHUNKED = -2
"""`expected_bytes` of a body whose length is not announced and need not be."""

ABSENT = -1
"""`expected_bytes` of a request with neither a length nor chunks: it is refused."""


class PendingState(IntEnum):
    """Where a publish stands; it never goes back."""

    ADMITTED = 0  # its head has passed the checks; its body is being read
    VALIDATING = 1  # the body has come and is being checked
    QUEUED = 2  # its topic's producer has it
    SENT = 3  # a log was given it, and may store it from now on
    KEPT = 4  # the spool has it, and nothing more is begun for it
    SETTLED = 5  # it is answered


ADMITTED, VALIDATING, QUEUED, SENT, KEPT, SETTLED = PendingState


@dataclass(slots=True, eq=False)
class Pending:
    """The `messages` of one publish, or of a part of a batch, and what has become of them.

    `started_s` is monotonic: when its headers had been read; `started_ms` is that by the wall
    clock, 0 for a part of a batch, whose messages have it. `key` says where all of its messages
    go; `body_bytes` are those of all. `is_done`: it is answered or kept, and nothing more is begun
    for it. `is_sent`: a log was given it, so it may be stored. `keeper` is the spool that has it,
    whatever the topic has become since. `demand` is what its head asks for, until its body has
    come. `notify` is called once, synchronously, when it is answered. `limits` are the route's as
    they were when this began: what its topic becomes meanwhile changes none.

    `outcome` is that of all messages, or of the first when `outcomes` has one for each. `trace` is
    what its messages carry: their publisher's, until a listener that records it, told of its
    admission, puts its own there.
    """

    id: str
    route: "Route"
    started_s: float
    key: bytes | None
    expected_bytes: int
    limits: Limits
    notify: "Callable[[Pending], None]"
    demand: Demand | None = None
    count: int = 1
    started_ms: int = 0
    state: PendingState = ADMITTED
    has_body: bool = False
    is_done: bool = False
    is_sent: bool = False
    messages: Sequence[Message] = ()
    body_bytes: int = 0
    keeper: Spool | None = None
    offer: Offer | None = None
    trace: TraceContext | None = None
    outcome: Settled | None = None
    outcomes: Sequence[Settled] | None = None
    # The outcomes of those messages that are not left to the spool, while it has the others.
    _known: list[Settled | None] | None = None

    @property
    def is_answered(self) -> bool:
        """True when its outcome has been told."""
        return self.state is SETTLED

    @property
    def keys(self) -> Sequence[bytes | None] | None:
        """The key of each message; None when all have the same."""
        return keys_of(self.messages) if self.count > 1 else None

    @property
    def answer(self) -> Answer:
        """The answer for its publisher; it must be settled."""
        assert self.outcome is not None, "it is not settled"
        return answer_to(self.outcome, self.id, self.route.name, has_body=self.has_body)

    # The way to a log.

    def validating(self) -> None:
        """Enter VALIDATING: its body has come, and is being checked."""
        assert self.state == ADMITTED, "its body comes once"
        self.state = VALIDATING
        self.has_body = True

    def queued(self, messages: Sequence[Message], key: bytes | None, body_bytes: int) -> None:
        """Enter QUEUED with messages found good, which wait for the topic's producer."""
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
        """Take the outcomes of its append, one for each message: settle it, or keep those that are
        not stored, all or none. True when this settled it; the caller counts it, with others of its
        batch.
        """
        keeper = self.keeper
        if keeper is not None and self.offer is not None:
            keeper.concluded(self.offer, [type(each) is Stored for each in outcomes])
        if self.state is SETTLED:
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
        log_topic, index = self.route.log_topic, spool.index
        keys = self.keys or (self.key,)
        return any(key is not None and index.holds(log_topic, key) for key in dict.fromkeys(keys))

    def keep(self) -> bool:
        """Have the spool keep all of its messages; False when it has to be answered without."""
        if self.is_done:
            return False
        return self._keep(self.messages, is_sent=self.is_sent)

    def join_kept(self) -> None:
        """Be kept like older messages of its key, or be answered that this cannot be."""
        if not self.is_done and not self.keep():
            self.settle(full_behind_key(self.route.name, was_sent=self.is_sent))

    def _keep_left(self, outcomes: Sequence[Outcome]) -> bool:
        """Have the spool keep those that a log may still take; False when it keeps none."""
        known: list[Settled | None] = [
            None if isinstance(each, UnavailableRecord | UnknownRecord) else each
            for each in outcomes
        ]
        left = [each for each, is_known in zip(self.messages, known, strict=True) if not is_known]
        if not left or not self._keep(left, is_sent=False):
            return False
        self._known = known
        return True

    def _keep(self, messages: Sequence[Message], *, is_sent: bool) -> bool:
        """Offer these to the spool, all or none. `is_sent`: an append of them is under way."""
        assert self.state in (QUEUED, SENT), "only what was found good is kept, and once"
        route, spool = self.route, self.route.spool
        if spool is None:
            return False
        ack, spooled_at_ms = route.topic.ack, spool.clock.now_ms()
        entries = [
            SpoolEntry(
                topic=route.name,
                log_topic=route.log_topic,
                incarnation=route.incarnation,
                ack=ack,
                spooled_at_ms=spooled_at_ms,
                message=replace(message, via=Via.SPOOL.value),
            )
            for message in messages
        ]
        offer = spool.offer(entries, self._written, is_sent=is_sent)
        if offer is None:
            return False
        self.offer = offer if is_sent else None
        self.state = KEPT
        self.is_done = True
        self.keeper = spool
        for listener in self.route.listeners:
            listener.kept(self, messages)
        return True

    def _written(self, error: SpoolUnavailable | None) -> None:
        """Settle it as buffered when the spool's disk has it, as not written when that could not
        take it.
        """
        if error is None:
            self.settle(Buffered())
        else:
            self.settle(
                not_written(
                    self.route.name,
                    error.message,
                    was_sent=self.is_sent,
                    may_be_kept=error.may_be_kept,
                )
            )

    # The end.

    def settle(self, outcome: Settled) -> bool:
        """Give all messages this outcome that have none yet, and tell the edge; False when it was
        told before.
        """
        if self.state is SETTLED:
            return False
        known, keeper, now_s = self._known, self.keeper, self.started_s
        if known is None:
            self.end(outcome)
        else:
            assert keeper is not None, "it has the others"
            outcomes = [outcome if each is None else each for each in known]
            now_s = keeper.clock.monotonic_s()
            self.end(outcomes[0], outcomes)
        self.route.settled((self,), now_s)
        return True

    def end(self, outcome: Settled, outcomes: Sequence[Settled] | None = None) -> None:
        """Settle it with its outcome, or that of each message; the caller counts it."""
        assert self.state is not SETTLED, "it is told once"
        self.state = SETTLED
        self.is_done = True
        self.outcome = outcome
        self.outcomes = outcomes
        self.messages = ()
        self.route.drain.in_flight -= 1
        self.notify(self)

    def expire(self, limit_ms: int) -> int | None:
        """Act on one of its limits that has passed: 408 while the body is being read; else it is
        kept, or answered 503.

        What the log was not given by then never is, what it was given may yet be stored; the text
        says which. Returns the limit that it runs up to next, None when it has been answered.
        """
        limits = self.limits
        if self.state == KEPT:
            if limit_ms < limits.kept_ms:
                return limits.kept_ms
        elif limit_ms < limits.late_ms:
            # Some time is left for what cannot be kept.
            is_kept = self.state >= QUEUED and self.keep()
            return limits.kept_ms if is_kept else limits.late_ms
        if not self.has_body:
            self.settle(
                Refused(
                    f"The request's body was not received within {limit_ms} ms", ErrorCode.TIMEOUT
                )
            )
            return None
        self.settle(overdue(limit_ms, may_be_stored=self.is_sent or self.state == KEPT))
        return None


class Transitions:
    """Hears of every transition of a node's publishes, of all that take it together at once. As it
    is, it does nothing.

    The words are those of `consumer.delivery.Transitions` where they mean the same. The calls come
    on the publishing path: they do not wait, do not raise, and keep no sequence.
    """

    def admitted(self, pendings: Sequence[Pending]) -> None:
        """The heads of these have passed their checks."""

    def sent(self, pendings: Sequence[Pending], dc: str, via: str) -> None:
        """An append of these begins, to this datacentre's log; `via` is their records' way."""

    def answered(
        self,
        pendings: Sequence[Pending],
        dc: str,
        partition: int,
        outcomes: Sequence[Outcome],
        took_s: float,
    ) -> None:
        """An append of these to a partition of this datacentre's log has ended, with an outcome for
        each message, in order. Pendings that have settled meanwhile are among them.
        """

    def kept(self, pending: Pending, messages: Sequence[Message]) -> None:
        """The spool has taken these of its messages, and will send them; its disk may not have them
        yet.
        """

    def settled(self, pendings: Sequence[Pending]) -> None:
        """These have their outcomes, and were told."""


SchemaOf = Callable[[Topic], Validation | None]
"""Tells what the schema of a topic, as it is, demands of its messages; None for nothing."""

ListenersOf = Callable[[Topic], Sequence[Transitions]]
"""Tells who hears of the publishes to a topic, as it is."""


@dataclass(slots=True, weakref_slot=True, eq=False)
class Route:
    """One live topic: what publishing to it needs, worked out once and not for each message.

    `is_open` is False while the topic's producer backs off after a failure. `change` wakes it when
    the topic changes, so that it looks its partitions up again. `producer` is what the supervisor
    calls that actor, `ref` its mailbox. `partitions` is 0 until the producer knows how many the log
    topic has. `batch_limits` are those of batches' messages. `validate` is what the topic's schema
    demands of a message, None for nothing, `listeners` hear of its publishes; `schema_of` and
    `listeners_of` give both for the topic as it is now.
    """

    name: str
    log_topic: str
    topic: Topic
    ref: Ref[Pending]
    limits: Limits
    measures: TopicMeasures
    drain: Drain
    producer: str
    schema_of: SchemaOf = lambda _topic: None
    listeners_of: ListenersOf = lambda _topic: ()
    spool: Spool | None = None
    is_open: bool = True
    partitions: int = 0
    changed: trio.Event = field(default_factory=trio.Event)
    incarnation: int = field(init=False)
    batch_limits: Limits = field(init=False)
    validate: Validation | None = field(init=False)
    listeners: Sequence[Transitions] = field(init=False)

    def __post_init__(self) -> None:
        parsed = parse_log_topic(self.log_topic)
        self.incarnation = parsed[1] if parsed is not None else 0
        self.batch_limits = self.limits
        self._ask_again()

    def change(self, topic: Topic) -> None:
        """Take the topic as it is now, and wake who waits for `changed`."""
        self.topic = topic
        self._ask_again()
        self.changed.set()
        self.changed = trio.Event()

    def _ask_again(self) -> None:
        self.validate = self.schema_of(self.topic)
        self.listeners = self.listeners_of(self.topic)

    def answered(
        self,
        pendings: Sequence[Pending],
        dc: str,
        partition: int,
        outcomes: Sequence[Outcome],
        took_s: float,
    ) -> None:
        """Tell who listens that an append of these has ended; as `Transitions.answered`."""
        for listener in self.listeners:
            listener.answered(pendings, dc, partition, outcomes, took_s)

    def settled(self, pendings: Sequence[Pending], now_s: float = 0.0) -> None:
        """Count that these have their outcomes, and tell who listens; `now_s`, monotonic, is asked
        for where one of them is stored: its latency is that from headers read to answer.
        """
        measures = self.measures
        latencies: list[tuple[float, int]] = []
        for pending in pendings:
            outcome, outcomes, stored = pending.outcome, pending.outcomes, pending.count
            assert outcome is not None, "it is settled"
            if outcomes is not None or type(outcome) is not Stored:
                outcomes = (outcome,) * stored if outcomes is None else outcomes
                stored = stored_count(outcomes)
                for each in outcomes if stored < pending.count else ():
                    if (status := status_of(each, self.name)) not in (0, 201):
                        measures.answered(status, 1)
            if stored:
                latencies.append((now_s - pending.started_s, stored))
        if latencies:
            measures.stored(latencies)
        for listener in self.listeners:
            listener.settled(pendings)
