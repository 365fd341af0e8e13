"""One message on its way into the log; it is answered exactly once, by whoever is first."""

from collections.abc import Callable, Sequence
from typing import Protocol

import trio
from msgspec import Struct

from hermes_actors.actors.mailbox import Ref
from hermes_actors.errors import ErrorCode, HermesError, Refused, Unavailable
from hermes_actors.log.base import Outcome, Stored, UnavailableRecord, UnknownRecord
from hermes_actors.model.message import Headers
from hermes_actors.model.topic import Topic
from hermes_actors.publisher.deadlines import Lane, Lanes
from hermes_actors.publisher.idempotency import Claim
from hermes_actors.publisher.measures import TopicMeasures
from hermes_actors.publisher.permits import Permits

CHUNKED = -2
"""`expected_bytes` of a body whose length is not announced and need not be."""

ABSENT = -1
"""`expected_bytes` of a request with neither a length nor chunks: it is refused."""


class Abandoned(Struct, frozen=True):
    """The publisher left before its body was complete: nobody waits for an answer."""


class Buffered(Struct, frozen=True):
    """No log has it yet, but this node's disk does, and sends it until one has."""


class Replayed(Struct, frozen=True):
    """The message was stored before, under the same key: the first answer's status again."""

    status: int


class Tally:
    """How many publications of this node are under way; the drain waits until none is."""

    __slots__ = ("in_flight",)

    def __init__(self) -> None:
        self.in_flight = 0


class Buffer(Protocol):
    """Keeps what no log acknowledged in time, and sends it later."""

    def take(self, publication: "Publication") -> bool:
        """Keep it: it is settled exactly once, as Buffered or with an error.

        False: the buffer is off for its topic, full or failing; nothing has happened.
        """

    def holds(self, route: "Route", key: bytes) -> bool:
        """Whether a message of this key waits here: newer ones must wait behind it."""

    async def catch_up(self, route: "Route", is_behind: Callable[[], bool]) -> None:
        """Wait while `is_behind`, for some milliseconds at most, if what waits is being sent."""

    def concluded(self, publication: "Publication", outcome: Outcome) -> None:
        """An append that had begun before it was taken has ended, with this outcome."""


def _hurry_nobody() -> None:
    pass


class Route:
    """What the gateway needs to know of one live topic, worked out once and not per message.

    `is_open` is False while the topic's producer backs off after a failure. `version` grows when
    the topic changes, so that the producer looks its partitions up again; `change` also wakes it,
    before the next message. `producer` is what the supervisor calls that actor. With a `buffer`,
    the first of the `lanes` ends early enough for it to keep a message within the limit, and the
    late one is that of the limit; without one both are the same. `partitions` is 0 until the
    producer knows how many the log topic has. `batch_permits` bounds what batches have under way
    for it, `batch_lanes` are those of their messages. `hurry` has those told of their fate that is
    known, before their limit is what they are answered with.
    """

    __slots__ = (
        "batch_lanes",
        "batch_permits",
        "buffer",
        "changed",
        "hurry",
        "is_open",
        "lanes",
        "log_topic",
        "measures",
        "name",
        "partitions",
        "producer",
        "ref",
        "tally",
        "topic",
        "version",
    )

    def __init__(
        self,
        name: str,
        log_topic: str,
        topic: Topic,
        ref: "Ref[Publication]",
        lane: Lane,
        measures: TopicMeasures,
        tally: Tally,
        producer: str,
    ) -> None:
        self.name = name
        self.log_topic = log_topic
        self.topic = topic
        self.ref = ref
        self.lanes = Lanes(lane, lane, lane)
        self.measures = measures
        self.tally = tally
        self.producer = producer
        self.buffer: Buffer | None = None
        self.hurry: Callable[[], None] = _hurry_nobody
        self.is_open = True
        self.partitions = 0
        self.batch_lanes = self.lanes
        self.batch_permits: Permits | None = None
        self.version = 0
        self.changed = trio.Event()

    def change(self, topic: Topic) -> None:
        """The topic is now this."""
        self.topic = topic
        self.version += 1
        self.changed.set()
        self.changed = trio.Event()


class Extras(Struct):
    """What a message carries beside its body and its key; most carry none of it.

    `propagated` are request headers for the subscriber, `attributes` those of a CloudEvent without
    their prefix; `is_event`: the body is a CloudEvent, and they are in it. `claim` is its use of an
    `Idempotency-Key`.
    """

    propagated: Headers = ()
    traceparent: str = ""
    attributes: Headers = ()
    is_event: bool = False
    claim: Claim | None = None

    @property
    def size(self) -> int:
        """How many characters all that travels of it has."""
        pairs = (*self.propagated, *self.attributes)
        return len(self.traceparent) + sum([len(name) + len(value) for name, value in pairs])


class Publication:
    """A message, what is known of its request, and the one-shot cell for its outcome.

    `started_s` is monotonic: when its headers had been read. `is_sent`: the log was given it, so it
    may be stored. `is_kept`: the buffer has it; `keeper` is that one, whatever the topic has become
    since. `is_done`: it is answered or kept, and nothing more is begun for it. `notify` is called
    once, synchronously, when it is answered. `lanes` are the route's as it was when this began:
    what its topic becomes meanwhile changes no limit.
    """

    __slots__ = (
        "body",
        "body_bytes",
        "expected_bytes",
        "extras",
        "has_body",
        "id",
        "is_answered",
        "is_done",
        "is_kept",
        "is_sent",
        "keeper",
        "key",
        "lanes",
        "notify",
        "outcome",
        "route",
        "started_s",
    )

    count = 1
    """How many messages it is."""

    def __init__(
        self,
        message_id: str,
        route: Route,
        started_s: float,
        key: bytes | None,
        expected_bytes: int,
        notify: "Callable[[Publication], None]",
    ) -> None:
        self.id = message_id
        self.route = route
        self.lanes = route.lanes
        self.started_s = started_s
        self.key = key
        self.expected_bytes = expected_bytes
        self.notify = notify
        self.body = b""
        self.body_bytes = 0
        self.has_body = False
        self.is_answered = False
        self.is_done = False
        self.is_kept = False
        self.is_sent = False
        self.keeper: Buffer | None = None
        self.extras: Extras | None = None
        self.outcome: Outcome | HermesError | Abandoned | Buffered | Replayed | None = None

    def settle(self, outcome: Outcome | HermesError | Abandoned | Buffered | Replayed) -> bool:
        """Set the outcome and tell the edge; False when there was one already."""
        if self.is_answered:
            return False
        self.is_answered = self.is_done = True
        self.outcome = outcome
        self.body = b""
        self.route.tally.in_flight -= 1
        self.notify(self)
        return True

    def keep(self) -> bool:
        """Give it to the buffer; False when it has to be answered without."""
        buffer = self.route.buffer
        if self.is_done or buffer is None or not buffer.take(self):
            return False
        self.keeper = buffer
        self.is_kept = self.is_done = True
        return True

    def join_kept(self) -> None:
        """Older messages of its key are kept: be kept too, or be answered that this cannot be."""
        if not self.is_done and not self.keep():
            self.settle(
                Unavailable(
                    f"Message for topic {self.route.name} was not stored: older messages of its "
                    "key wait in the spool, which takes no more; try again"
                )
            )

    def is_behind(self, buffer: Buffer) -> bool:
        """Whether older messages of its key wait in the buffer."""
        return self.key is not None and buffer.holds(self.route, self.key)

    def conclude(self, outcomes: Sequence[Outcome]) -> int:
        """The append of its messages has ended: settle it, or have it kept. How many were answered
        by this as stored.
        """
        (outcome,) = outcomes
        if not self.is_kept and isinstance(outcome, UnavailableRecord | UnknownRecord):
            self.keep()
        if self.keeper is not None:
            self.keeper.concluded(self, outcome)
            if not isinstance(outcome, Stored):
                return 0
        return int(self.settle(outcome) and isinstance(outcome, Stored))

    def expire(self, limit_ms: int) -> None:
        """Its time is over: 408 while the body is being read; else it is kept, or answered 503.
        What the log was not given by then never is, what it was given may yet be stored; the text
        says which.
        """
        lanes = self.lanes
        if self.is_kept:
            if limit_ms < lanes.kept.limit_ms:
                lanes.kept.add(self)
                return
        elif limit_ms < lanes.late.limit_ms:
            # Some time is left for what cannot be kept.
            lane = lanes.kept if self.has_body and self.keep() else lanes.late
            lane.add(self)
            return
        if not self.has_body:
            self.settle(
                Refused(
                    f"The request's body was not received within {limit_ms} ms",
                    ErrorCode.TIMEOUT,
                )
            )
            return
        if self.is_sent:
            self.route.hurry()
        self.settle(overdue(limit_ms, may_be_stored=self.is_sent or self.is_kept))


def overdue(limit_ms: int, *, may_be_stored: bool) -> Unavailable:
    """No log acknowledged within the limit."""
    became = (
        "acknowledged by the log within {} ms; it may have been stored"
        if may_be_stored
        else "given to the log within {} ms; it was not stored"
    )
    return Unavailable(
        f"Message was not {became.format(limit_ms)}", ErrorCode.SENDING_TO_KAFKA_TIMEOUT
    )


def not_kept(route: Route, *, may_be_stored: bool) -> Unavailable:
    """The buffer took others of its request, but not this one."""
    became = "may have been stored" if may_be_stored else "was not stored"
    return Unavailable(
        f"Message for topic {route.name} {became}: no log acknowledged it in time, and the spool "
        "takes no more; try again",
        ErrorCode.SENDING_TO_KAFKA_TIMEOUT,
    )
