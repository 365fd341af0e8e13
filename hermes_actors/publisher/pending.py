"""The life of one admitted publish (admitted, validating, queued, sent, kept, settled), and the
route with all that publishing to its topic needs.

Each transition is one function and asserts that it is allowed. The outcome is reported exactly
once, by whoever settles it first.
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
    of_topic,
    overdue,
    status_of,
)
from hermes_actors.publisher.demands import Demand, Head
from hermes_actors.publisher.drain import Drain
from hermes_actors.publisher.measures import TopicMeasures
from hermes_actors.schema.validation import Validation


class Limits(NamedTuple):
    """The time limits of a publish, in ms after its start.

    At `first_ms` the spool gets it; at `late_ms` it is answered that no log took it; at `kept_ms`
    that the spool's disk did not take it either. Without a spool all three are the same.
    """

    first_ms: int
    late_ms: int
    kept_ms: int


CHUNKED = -2
"""`expected_bytes` of a body whose length is not announced, which is allowed."""

ABSENT = -1
"""`expected_bytes` of a request with neither a length nor chunks; it is refused."""


class PendingState(IntEnum):
    """The progress of a publish. It only goes forward."""

    ADMITTED = 0  # the checks of its head have passed; its body is being read
    VALIDATING = 1  # the body is complete and is being checked
    QUEUED = 2  # it is in the mailbox or the queue of its topic's producer
    SENT = 3  # an append has begun; a log may store it from now on
    KEPT = 4  # the spool has it; no further append begins
    SETTLED = 5  # it has been answered


ADMITTED, VALIDATING, QUEUED, SENT, KEPT, SETTLED = PendingState


@dataclass(slots=True, eq=False)
class Pending:
    """One publish, or a part of a batch: its `messages` and their outcome.

    `started_s` (monotonic) is when its headers had been read. `started_ms` is the same by the wall
    clock; 0 for a part of a batch, whose messages have their times. All of its messages share
    `key`; `body_bytes` is their total. `is_done`: it is answered or kept, and no further append
    begins. `is_sent`: an append has begun, so it may be stored. `keeper` is the spool that has it,
    even if the topic has changed since. `head` (None for a part of a batch) and `demand`, its
    special requests, are kept until its body is complete. `notify` is called once, synchronously,
    when it is answered. `limits` are copied from the route at the start; later changes of the topic
    do not affect them.

    `outcome` is the outcome of all messages, or of the first one when `outcomes` has one for each.
    `trace` is the trace context of its messages: the publisher's, until a listener that records it
    puts its own there.
    """

    id: str
    route: "Route"
    started_s: float
    key: bytes | None
    expected_bytes: int
    limits: Limits
    notify: "Callable[[Pending], None]"
    head: Head | None = None
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
    # While the spool has some of the messages: the outcomes of the others, None for those in the
    # spool.
    _known: list[Settled | None] | None = None

    @property
    def is_answered(self) -> bool:
        """True when its outcome has been reported."""
        return self.state is SETTLED

    @property
    def keys(self) -> Sequence[bytes | None] | None:
        """The key of each message; None when all share `key`."""
        return keys_of(self.messages) if self.count > 1 else None

    @property
    def answer(self) -> Answer:
        """The answer for its publisher; it must be settled."""
        assert self.outcome is not None, "it is not settled"
        answer = answer_to(self.outcome, self.id, self.route.name, has_body=self.has_body)
        return of_topic(answer, self.route.topic)

    # Towards a log.

    def validating(self) -> None:
        """Enter VALIDATING: its body is complete and is being checked."""
        assert self.state == ADMITTED, "its body is complete only once"
        self.state = VALIDATING
        self.has_body = True

    def queued(self, messages: Sequence[Message], key: bytes | None, body_bytes: int) -> None:
        """Enter QUEUED: the messages have passed the checks and wait for the topic's producer."""
        assert self.state == VALIDATING, "it is queued once, when it has been checked"
        self.state = QUEUED
        self.messages = messages
        self.key = key
        self.body_bytes = body_bytes
        self.head = self.demand = None

    def sent(self) -> None:
        """Record that an append of it begins, the first one or one to another datacentre."""
        assert self.state in (QUEUED, SENT), "no append begins once it is done"
        self.state = SENT
        self.is_sent = True

    def conclude(self, outcomes: Sequence[Outcome]) -> bool:
        """Take the outcomes of its append, one for each message.

        If some messages are not stored, the spool keeps them, all or none; else this settles it.
        Returns True if it was settled here; the caller counts it together with others of its batch.
        """
        keeper = self.keeper
        if keeper is not None and self.offer is not None:
            keeper.concluded(self.offer, [type(each) is Stored for each in outcomes])
        if self.state is SETTLED:
            return False
        assert self._known is None, "its append ends only once"
        if stored_count(outcomes) < self.count:
            if keeper is not None:
                self._known = [each if isinstance(each, Stored) else None for each in outcomes]
                return False
            if self._keep_left(outcomes):
                return False
        self.end(outcomes[0], outcomes if self.count > 1 else None)
        return True

    # The spool, if no log takes it in time.

    def is_behind(self, spool: Spool) -> bool:
        """True if older messages of any of its keys wait in the spool."""
        log_topic, index = self.route.log_topic, spool.index
        keys = self.keys or (self.key,)
        return any(key is not None and index.holds(log_topic, key) for key in dict.fromkeys(keys))

    def keep(self) -> bool:
        """Give all of its messages to the spool. False if the spool does not take them, or it is
        done.
        """
        if self.is_done:
            return False
        return self._keep(self.messages, is_sent=self.is_sent)

    def join_kept(self) -> None:
        """Put it into the spool, behind older messages of its key; if that fails, settle it with
        the error.
        """
        if not self.is_done and not self.keep():
            self.settle(full_behind_key(self.route.name, was_sent=self.is_sent))

    def _keep_left(self, outcomes: Sequence[Outcome]) -> bool:
        """Give the spool the messages that a log may still accept. False if the spool keeps
        none.
        """
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
        """Offer these messages to the spool, all or none. `is_sent`: an append of them is under
        way.
        """
        assert self.state in (QUEUED, SENT), "only checked messages are kept, and only once"
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
        """Settle it as buffered if the spool's disk has it, else as not written."""
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

    # Settling.

    def settle(self, outcome: Settled) -> bool:
        """Give this outcome to all messages that have none yet, and notify the edge. False if it
        was already settled.
        """
        if self.state is SETTLED:
            return False
        known, keeper, now_s = self._known, self.keeper, self.started_s
        if known is None:
            self.end(outcome)
        else:
            assert keeper is not None, "the spool has the other messages"
            outcomes = [outcome if each is None else each for each in known]
            now_s = keeper.clock.monotonic_s()
            self.end(outcomes[0], outcomes)
        self.route.settled((self,), now_s)
        return True

    def end(self, outcome: Settled, outcomes: Sequence[Settled] | None = None) -> None:
        """Settle it with one outcome, or with one for each message. The caller counts it."""
        assert self.state is not SETTLED, "it is settled only once"
        self.state = SETTLED
        self.is_done = True
        self.outcome = outcome
        self.outcomes = outcomes
        self.messages = ()
        self.route.drain.in_flight -= 1
        self.notify(self)

    def expire(self, limit_ms: int) -> int | None:
        """Act on a limit that has passed: 408 while the body is being read; else give it to the
        spool, or answer 503.

        A message that no append has begun with will not be stored; one that was sent may still be.
        The error says which. Returns the next limit in ms, None if it has been answered.
        """
        limits = self.limits
        if self.state == KEPT:
            if limit_ms < limits.kept_ms:
                return limits.kept_ms
        elif limit_ms < limits.late_ms:
            # Some time is left for a message that the spool does not take.
            is_kept = self.state >= QUEUED and self.keep()
            return limits.kept_ms if is_kept else limits.late_ms
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


class Transitions:
    """A listener to the transitions of a node's publishes; each call reports all that change
    together. This base class does nothing.

    The names match `consumer.delivery.Transitions` where they mean the same. The calls come on the
    publishing path: they must not wait, raise, or keep the sequences.
    """

    def admitted(self, pendings: Sequence[Pending]) -> None:
        """The heads of these publishes have passed their checks."""

    def sent(self, pendings: Sequence[Pending], dc: str, via: str) -> None:
        """An append of these publishes to this datacentre's log begins; `via` is the `Via` of their
        records.
        """

    def answered(
        self,
        pendings: Sequence[Pending],
        dc: str,
        partition: int,
        outcomes: Sequence[Outcome],
        took_s: float,
    ) -> None:
        """An append of these publishes to a partition of this datacentre's log has ended, with an
        outcome for each message, in order. Some may have been settled meanwhile.
        """

    def kept(self, pending: Pending, messages: Sequence[Message]) -> None:
        """The spool has accepted these messages and will send them. They may not be on its disk
        yet.
        """

    def settled(self, pendings: Sequence[Pending]) -> None:
        """These publishes have their outcomes, and their edges have been notified."""


SchemaOf = Callable[[Topic], Validation | None]
"""Returns the schema check for a topic; None if its messages are not checked."""

ListenersOf = Callable[[Topic], Sequence[Transitions]]
"""Returns the listeners for the publishes to a topic."""


@dataclass(slots=True, weakref_slot=True, eq=False)
class Route:
    """One live topic with all that publishing to it needs, computed once instead of for each
    message.

    `is_open` is False while the topic's producer backs off after a failure. `changed` is set when
    the topic changes, so that the producer looks up its partitions again. `producer` is the actor's
    name at the supervisor, `ref` its mailbox. `partitions` is 0 until the producer knows the number
    of partitions. `batch_limits` apply to the messages of batches. `validate` is the topic's schema
    check (None: no check), `listeners` follow its publishes; `schema_of` and `listeners_of` compute
    both again when the topic changes. `hurry` makes the hedge report the outcomes that it already
    has, before a limit decides.
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
    hurry: Callable[[], None] = lambda: None
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
        """Replace the topic's settings, and wake the tasks that wait for `changed`."""
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
        """Report to the listeners that an append has ended; as `Transitions.answered`."""
        for listener in self.listeners:
            listener.answered(pendings, dc, partition, outcomes, took_s)

    def settled(self, pendings: Sequence[Pending], now_s: float = 0.0) -> None:
        """Count these settled publishes, and report them to the listeners.

        `now_s` (monotonic) is needed if one of them is stored: its latency is the time from headers
        read to answer.
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
