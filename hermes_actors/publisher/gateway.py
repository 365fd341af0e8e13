"""The checks of one publish, in their order, and its hand-over to the topic's producer.

Synchronous: an edge calls `admit` when it has the headers, `hand_over` when it has the body, and
is told the outcome by the publication's `notify`. It never waits and never touches a log.
"""

from collections.abc import Callable, Mapping

import msgspec

from hermes_actors.actors.mailbox import MailboxClosed, MailboxFull
from hermes_actors.config import FrontendConfig
from hermes_actors.errors import ErrorCode, HermesError, Refused, Unavailable
from hermes_actors.log.base import Stored
from hermes_actors.model.message import Headers, Message
from hermes_actors.model.topic import ContentType
from hermes_actors.publisher.answers import (
    SHUTTING_DOWN,
    Answer,
    answer_to,
    error_answer,
    too_long_for_server,
    too_long_for_topic,
)
from hermes_actors.publisher.authentication import PublishSecurity, forbidden, may_publish
from hermes_actors.publisher.batches import Batches
from hermes_actors.publisher.bundle import Bundle
from hermes_actors.publisher.demands import Demands
from hermes_actors.publisher.drain import Drain
from hermes_actors.publisher.head import Head
from hermes_actors.publisher.measures import FrontendMeasures
from hermes_actors.publisher.preview import Previews
from hermes_actors.publisher.publication import (
    CHUNKED,
    Abandoned,
    Extras,
    Publication,
    Route,
    Tally,
)
from hermes_actors.publisher.quota import Quotas
from hermes_actors.runtime.clock import Clock, IdSource
from hermes_actors.security.account import Account

TOO_MANY_BYTES = ErrorCode.THROUGHPUT_QUOTA_VIOLATION.status


class Gateway:
    """The node's one way in for messages, over all edges. `routes` is the router's, read live.

    `doubt_about` says why a topic that has no route may exist all the same, "" when nothing does.
    """

    def __init__(
        self,
        config: FrontendConfig,
        routes: Mapping[str, Route],
        drain: Drain,
        tally: Tally,
        measures: FrontendMeasures,
        clock: Clock,
        ids: IdSource,
        doubt_about: Callable[[str], str] = lambda _topic: "",
    ) -> None:
        self._routes = routes
        self._doubt_about = doubt_about
        self._drain = drain
        self._tally = tally
        self._measures = measures
        self._clock = clock
        self._now_s = clock.monotonic_s
        self._message_id = ids.message_id
        self._enforces_size = config.force_topic_max_message_size
        self.body_bytes_max = config.body_bytes_max
        self._demands = Demands(config, clock)
        self._reads_every_head = self._demands.reads_every_head
        self._quotas: Quotas | None = None
        if config.throughput.type != "unlimited":
            self._quotas = Quotas(config.throughput, clock.monotonic_s())
        self.tells_quota = self._quotas is not None and config.throughput.headers_always
        """True when every answer to an admitted publish has the `quota_headers`."""
        self.security: PublishSecurity | None = None
        """Who publishes is asked with it, before `admit`; None: everybody is a guest."""
        self.previews: Previews | None = None
        if config.preview.enabled:
            self.previews = previews = Previews(config.preview)
            measures.metrics.total("previews_left_out", lambda: previews.left_out)
        measures.metrics.total("idempotency_replays", lambda: self._demands.replays)
        measures.metrics.gauge("idempotency_keys", lambda: self._demands.keys)
        self.batches = Batches(config, self, clock, ids)
        drain.on_closed.append(self.batches.end_all)
        measures.metrics.gauge("batch_streams", lambda: len(self.batches))

    @property
    def is_leaving(self) -> bool:
        """True when publishers should move their connections to another node."""
        return self._drain.is_leaving

    def admit(
        self,
        topic: str,
        expected_bytes: int,
        key: bytes | None,
        head: Head,
        notify: Callable[[Publication], None],
    ) -> Publication | Answer:
        """Check what is known before the body: the answer at once, or a publication that wants it.

        `expected_bytes` is the announced size of the body, CHUNKED or ABSENT. From here the time
        limit runs; `notify` may be called before the body has come.
        """
        if self._drain.is_refusing:
            return SHUTTING_DOWN
        message_id = self._message_id()
        route = self._routes.get(topic)
        if route is None:
            return self._unknown_topic(topic, message_id)
        auth = route.topic.auth
        if auth.enabled and not may_publish(auth, head.account):
            return self._forbidden(topic, head, message_id)
        measures = route.measures
        measures.requests.value += 1
        self._measures.requests.value += 1
        if expected_bytes > self.body_bytes_max:
            return self._too_long(route, expected_bytes, message_id)
        started_s = self._now_s()
        if self._quotas is not None:
            violation = self._quotas.refusal(topic, started_s)
            if violation is not None:
                return self._refusal(route, violation, message_id)
        publication = Publication(message_id, route, started_s, key, expected_bytes, notify)
        if self._reads_every_head or not head.is_plain:
            refusal = self._demands.read(publication, head)
            if refusal is not None:
                return self._refusal(route, refusal, message_id)
        self._tally.in_flight += 1
        publication.lanes.first.add(publication)
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
        if self._quotas is not None:
            violation = self._quotas.count(route.name, size, self._now_s())
            if violation is not None:
                publication.settle(violation)
                return
        if route.topic.content_type is not ContentType.JSON:
            publication.settle(_no_schema(route))
            return
        if publication.extras is not None:
            taken = self._demands.take(publication, body)
            if taken is None:
                return
            body, size = taken, len(taken)
        if self.previews is not None and self.previews.wants(route.log_topic):
            self._preview(self.previews, publication, body)
        publication.body = body
        publication.body_bytes = size
        self._tell(publication)

    def _tell(self, publication: Publication) -> None:
        route = publication.route
        if not route.is_open:
            publication.settle(_unavailable(route, "its producer is restarting after a failure"))
            return
        try:
            route.ref.tell(publication)
        except MailboxFull:
            publication.settle(_unavailable(route, "too many messages wait to be stored"))
        except MailboxClosed:
            publication.settle(_unavailable(route, "its producer is being stopped"))

    def admit_batch(self, topic: str, head: Head) -> Route | Answer:
        """Check what the headers of a batch say: its route, or the answer at once."""
        if self._drain.is_refusing:
            return SHUTTING_DOWN
        message_id = self._message_id()
        route = self._routes.get(topic)
        if route is None:
            return self._unknown_topic(topic, message_id)
        auth = route.topic.auth
        if auth.enabled and not may_publish(auth, head.account):
            return self._forbidden(topic, head, message_id)
        if self._quotas is not None:
            violation = self._quotas.refusal(topic, self._now_s())
            if violation is not None:
                return self._refusal(route, violation, message_id)
        if route.topic.content_type is not ContentType.JSON:
            return self._refusal(route, _no_schema(route), message_id)
        return route

    def hand_over_bundle(self, account: Account | None, bundle: Bundle) -> HermesError | None:
        """Give messages of a batch to their topic's producer; `notify` is called once. Why the
        batch has to end, None when it may go on.
        """
        route = bundle.route
        if self._routes.get(route.name) is not route:
            gone = self._gone(route.name)
            bundle.settle(gone)
            return gone
        self._hand_over_bundle(account, bundle, route)
        return None

    def _hand_over_bundle(self, account: Account | None, bundle: Bundle, route: Route) -> None:
        auth = route.topic.auth
        if auth.enabled and not may_publish(auth, account):
            # A stream may last for long, and the topic may have changed since it began.
            bundle.settle(forbidden(route.name, account))
            return
        if self._quotas is not None:
            now_s = self._now_s()
            # As for single messages, what is refused before it is looked at does not count: a
            # stream that goes on all the same would keep the topic above its quota for ever.
            violation = self._quotas.refusal(route.name, now_s) or self._quotas.count(
                route.name, bundle.body_bytes, now_s
            )
            if violation is not None:
                bundle.settle(violation)
                return
        if self.previews is not None and self.previews.wants(route.log_topic):
            self._preview(self.previews, bundle, bundle.body)
        self._tell(bundle)

    def common_extras(self, head: Head) -> Extras | None:
        """What the headers of a batch say for all its messages."""
        return self._demands.common(head)

    def pick(self, pairs: list[tuple[str, str]]) -> Headers:
        """Which of a message's own headers travel with it."""
        return self._demands.pick(pairs)

    def refuse_batch(self, route: Route, error: HermesError) -> Answer:
        """The answer to a batch that is not taken."""
        answer = self._refusal(route, error, self._message_id())
        return msgspec.structs.replace(answer, closes=True)

    def refuse_body(self, publication: Publication, received: int) -> None:
        """End a publication whose body, of no announced length, grows beyond the hard bound."""
        publication.settle(too_long_for_server(f"{received} bytes or more", self.body_bytes_max))

    def abandon(self, publication: Publication) -> None:
        """The publisher left before the body was complete; nobody is told."""
        publication.settle(Abandoned())

    def answer(self, publication: Publication) -> Answer:
        """The answer to a settled publication; counts it, unless it is a 201 (see `stored`)."""
        answer = answer_to(publication)
        if type(publication.outcome) is not Stored:
            publication.route.measures.answered(answer.status, 1)
        if self.tells_quota and answer.status != TOO_MANY_BYTES:
            told = self.quota_headers(publication)
            answer = msgspec.structs.replace(answer, headers=answer.headers + told)
        return answer

    def _unknown_topic(self, topic: str, message_id: str) -> Answer:
        answer = error_answer(self._unknown(topic), message_id)
        self._measures.status(answer.status).add()
        return answer

    def _unknown(self, topic: str) -> HermesError:
        # What is known may be another datacentre's, where this topic has not come to yet, or less
        # than the others know; and a publisher gives up after a 404.
        doubt = self._drain.trouble if self._drain.is_troubled else self._doubt_about(topic)
        if doubt:
            return Unavailable(
                f"Topic {topic} is not known here, but may exist: {doubt}; try again"
            )
        return Refused(f"Topic not found: {topic}", ErrorCode.TOPIC_NOT_EXISTS)

    def _gone(self, topic: str) -> HermesError:
        """What becomes of a batch whose topic is not any more what it was when it began."""
        if topic not in self._routes:
            return self._unknown(topic)
        return Unavailable(
            f"Topic {topic} was deleted and created again while this batch was open; send what was "
            "not stored in another request"
        )

    def quota_headers(self, publication: Publication) -> tuple[tuple[str, str], ...]:
        """What the answer to an admitted publish says of its topic's quota."""
        assert self._quotas is not None, "there are no quotas to tell of"
        return self._quotas.headers(publication.route.name, self._now_s())

    def _preview(self, previews: Previews, publication: Publication, body: bytes) -> None:
        extras = publication.extras
        message = Message(
            id=publication.id,
            body=body,
            published_at_ms=self._clock.now_ms(),
            propagated=() if extras is None else extras.propagated,
        )
        previews.add(publication.route.log_topic, message)

    def _refusal(self, route: Route, error: HermesError, message_id: str) -> Answer:
        answer = error_answer(error, message_id)
        route.measures.answered(answer.status, 1)
        return answer

    def _forbidden(self, topic: str, head: Head, message_id: str) -> Answer:
        answer = error_answer(forbidden(topic, head.account), message_id, closes=True)
        self._measures.status(answer.status).add()
        return answer

    def _too_long(self, route: Route, size: int, message_id: str) -> Answer:
        error = too_long_for_server(f"{size} bytes", self.body_bytes_max)
        answer = error_answer(error, message_id, closes=True)
        route.measures.answered(answer.status, 1)
        return answer

    def _length_error(self, route: Route, expected: int, size: int) -> HermesError | None:
        if expected not in (size, CHUNKED):
            return Refused(
                f"Content-Length does not match the received body: header {expected}, "
                f"received {size}"
            )
        if self._enforces_size and size > route.topic.max_message_size:
            return too_long_for_topic(size, route.topic)
        return None


def _no_schema(route: Route) -> Refused:
    return Refused(
        f"No schema is known for topic {route.name}", ErrorCode.SCHEMA_COULD_NOT_BE_LOADED
    )


def _unavailable(route: Route, reason: str) -> Unavailable:
    return Unavailable(
        f"Message for topic {route.name} was not stored: {reason}; try again", ErrorCode.OTHER
    )
