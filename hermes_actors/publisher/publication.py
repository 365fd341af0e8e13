"""One message on its way into the log; it is answered exactly once, by whoever is first."""

from collections.abc import Callable

from msgspec import Struct

from hermes_actors.actors.mailbox import Ref
from hermes_actors.errors import ErrorCode, HermesError, Refused, Unavailable
from hermes_actors.log.base import Outcome
from hermes_actors.model.topic import Topic
from hermes_actors.publisher.deadlines import Lane
from hermes_actors.publisher.measures import TopicMeasures

CHUNKED = -2
"""`expected_bytes` of a body whose length is not announced and need not be."""

ABSENT = -1
"""`expected_bytes` of a request with neither a length nor chunks: it is refused."""


class Abandoned(Struct, frozen=True):
    """The publisher left before its body was complete: nobody waits for an answer."""


class Tally:
    """How many publications of this node are under way; the drain waits until none is."""

    __slots__ = ("in_flight",)

    def __init__(self) -> None:
        self.in_flight = 0


class Route:
    """What the gateway needs to know of one live topic, worked out once and not per message.

    `is_open` is False while the topic's producer backs off after a failure. `version` grows when
    the topic changes, so that the producer looks its partitions up again. `producer` is what the
    supervisor calls that actor.
    """

    __slots__ = (
        "is_open",
        "lane",
        "log_topic",
        "measures",
        "name",
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
        self.lane = lane
        self.measures = measures
        self.tally = tally
        self.producer = producer
        self.is_open = True
        self.version = 0


class Publication:
    """A message, what is known of its request, and the one-shot cell for its outcome.

    `started_s` is monotonic: when its headers had been read. `is_sent`: the log was given it, so it
    may be stored. `notify` is called once, synchronously, when the outcome is there.
    """

    __slots__ = (
        "body",
        "expected_bytes",
        "has_body",
        "id",
        "is_done",
        "is_sent",
        "key",
        "notify",
        "outcome",
        "route",
        "started_s",
    )

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
        self.started_s = started_s
        self.key = key
        self.expected_bytes = expected_bytes
        self.notify = notify
        self.body = b""
        self.has_body = False
        self.is_done = False
        self.is_sent = False
        self.outcome: Outcome | HermesError | Abandoned | None = None

    def settle(self, outcome: Outcome | HermesError | Abandoned) -> bool:
        """Set the outcome and tell the edge; False when there was one already."""
        if self.is_done:
            return False
        self.is_done = True
        self.outcome = outcome
        self.body = b""
        self.route.tally.in_flight -= 1
        self.notify(self)
        return True

    def expire(self, limit_ms: int) -> None:
        """Its time is over: 408 while the body is being read, else 503. What the log was not given
        by then never is, what it was given may yet be stored; the text says which.
        """
        if self.is_done:
            return
        if self.has_body:
            became = (
                "acknowledged by the log within {} ms; it may have been stored"
                if self.is_sent
                else "given to the log within {} ms; it was not stored"
            )
            self.settle(
                Unavailable(
                    f"Message was not {became.format(limit_ms)}",
                    ErrorCode.SENDING_TO_KAFKA_TIMEOUT,
                )
            )
        else:
            self.settle(
                Refused(
                    f"The request's body was not received within {limit_ms} ms",
                    ErrorCode.TIMEOUT,
                )
            )
