"""The checks of one publish, in their order, and its hand-over to the topic's producer.

Synchronous: an edge calls `admit` when it has the headers, `hand_over` when it has the body, and
is told the outcome by the publication's `notify`. It never waits and never touches a log.
"""

import re
from collections.abc import Callable, Mapping

from hermes_actors.actors.mailbox import MailboxClosed, MailboxFull
from hermes_actors.config import FrontendConfig
from hermes_actors.errors import ErrorCode, HermesError, Refused, Unavailable
from hermes_actors.log.base import Stored
from hermes_actors.model.topic import ContentType
from hermes_actors.publisher.answers import (
    BAD_REQUEST,
    SHUTTING_DOWN,
    Answer,
    answer_to,
    error_answer,
)
from hermes_actors.publisher.drain import Drain
from hermes_actors.publisher.head import Head
from hermes_actors.publisher.measures import FrontendMeasures
from hermes_actors.publisher.publication import (
    ABSENT,
    CHUNKED,
    Abandoned,
    Extras,
    Publication,
    Route,
    Tally,
)
from hermes_actors.runtime.clock import Clock, IdSource

# W3C Trace Context, 3.2: what does not look like it is ignored, as the recommendation asks.
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


class Gateway:
    """The node's one way in for messages, over all edges. `routes` is the router's, read live."""

    def __init__(
        self,
        config: FrontendConfig,
        routes: Mapping[str, Route],
        drain: Drain,
        tally: Tally,
        measures: FrontendMeasures,
        clock: Clock,
        ids: IdSource,
    ) -> None:
        self._routes = routes
        self._drain = drain
        self._tally = tally
        self._measures = measures
        self._now_s = clock.monotonic_s
        self._message_id = ids.message_id
        self._enforces_size = config.force_topic_max_message_size
        self.body_bytes_max = config.body_bytes_max

    @property
    def is_leaving(self) -> bool:
        """True when publishers should move their connections to another node."""
        return self._drain.is_leaving

    def admit(
        self,
        topic: str,
        length: str | bytes | None,
        encoding: str | bytes | None,
        key: bytes | None,
        head: Head,
        notify: Callable[[Publication], None],
    ) -> Publication | Answer:
        """Check what the headers say: the answer at once, or a publication that wants its body.

        `length` and `encoding` are the Content-Length and Transfer-Encoding headers; all others are
        in `head`. From here the time limit runs; `notify` may be called before the body has come.
        """
        if self._drain.is_refusing:
            return SHUTTING_DOWN
        if length is None:
            expected = CHUNKED if encoding in ("chunked", b"chunked") else ABSENT
        elif encoding is not None or not length.isdigit():
            return BAD_REQUEST
        else:
            expected = int(length)
        message_id = self._message_id()
        route = self._routes.get(topic)
        if route is None:
            return self._unknown_topic(topic, message_id)
        measures = route.measures
        measures.requests.value += 1
        self._measures.requests.value += 1
        if expected > self.body_bytes_max:
            return self._too_long(route, expected, message_id)
        publication = Publication(message_id, route, self._now_s(), key, expected, notify)
        if not head.is_plain:
            _read_extras(publication, head)
        self._tally.in_flight += 1
        route.lane.add(publication)
        return publication

    def hand_over(self, publication: Publication, body: bytes) -> None:
        """Check the body and give the message to its topic's producer.

        Whatever comes of it, `notify` is called once, perhaps before this returns.
        """
        if publication.is_done:
            return
        publication.has_body = True
        route = publication.route
        size = len(body)
        expected = publication.expected_bytes
        if (expected != size and expected != CHUNKED) or self._enforces_size:
            refusal = self._length_error(route, expected, size)
            if refusal is not None:
                publication.settle(refusal)
                return
        if route.topic.content_type is not ContentType.JSON:
            publication.settle(
                Refused(
                    f"No schema is known for topic {route.name}",
                    ErrorCode.SCHEMA_COULD_NOT_BE_LOADED,
                )
            )
            return
        publication.body = body
        publication.body_bytes = size
        if not route.is_open:
            publication.settle(_unavailable(route, "its producer is restarting after a failure"))
            return
        try:
            route.ref.tell(publication)
        except MailboxFull:
            publication.settle(_unavailable(route, "too many messages wait to be stored"))
        except MailboxClosed:
            publication.settle(_unavailable(route, "its producer is being stopped"))

    def refuse_body(self, publication: Publication, received: int) -> None:
        """End a publication whose body, of no announced length, grows beyond the hard bound."""
        publication.settle(Refused(_too_long_text(received, self.body_bytes_max)))

    def abandon(self, publication: Publication) -> None:
        """The publisher left before the body was complete; nobody is told."""
        publication.settle(Abandoned())

    def answer(self, publication: Publication) -> Answer:
        """The answer to a settled publication; counts it, unless it is a 201 (see `stored`)."""
        answer = answer_to(publication)
        if type(publication.outcome) is not Stored:
            publication.route.measures.answered(answer.status, 1)
        return answer

    def _unknown_topic(self, topic: str, message_id: str) -> Answer:
        error: HermesError = Refused(f"Topic not found: {topic}", ErrorCode.TOPIC_NOT_EXISTS)
        if self._drain.is_up and not self._drain.is_ready:
            # What is known may be another datacentre's, where this topic has not come to yet; and
            # a publisher gives up after a 404.
            error = Unavailable(
                f"Topic {topic} is not known here, but may exist: {self._drain.trouble}; try again"
            )
        answer = error_answer(error, message_id)
        self._measures.status(answer.status).add()
        return answer

    def _too_long(self, route: Route, size: int, message_id: str) -> Answer:
        answer = error_answer(
            Refused(_too_long_text(size, self.body_bytes_max)), message_id, closes=True
        )
        route.measures.answered(answer.status, 1)
        return answer

    def _length_error(self, route: Route, expected: int, size: int) -> HermesError | None:
        if expected not in (size, CHUNKED):
            return Refused(
                f"Content-Length does not match the received body: header {expected}, "
                f"received {size}"
            )
        limit = route.topic.max_message_size
        if self._enforces_size and size > limit:
            return Refused(
                f"Message is {size} bytes long; topic {route.name} takes at most {limit}"
            )
        return None


def _read_extras(publication: Publication, head: Head) -> None:
    """What only few requests ask for."""
    traceparent = head.get("traceparent")
    if traceparent is not None and _TRACEPARENT.fullmatch(traceparent):
        publication.extras = Extras(traceparent=traceparent)


def _too_long_text(size: int, limit: int) -> str:
    return f"Message of {size} bytes or more is above this server's limit of {limit}"


def _unavailable(route: Route, reason: str) -> Unavailable:
    return Unavailable(
        f"Message for topic {route.name} was not stored: {reason}; try again", ErrorCode.OTHER
    )
