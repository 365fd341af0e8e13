"""The checks of one publish, in their order, and its hand-over to the topic's producer.

Synchronous: an edge calls `admit` when it has the headers, `hand_over` when it has the body, and
is told the outcome by `notify`. It never waits and never touches a log. All that is behind it sees
messages, and nothing of how they came.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from hermes_actors.actors.mailbox import MailboxClosed, MailboxFull
from hermes_actors.config import FrontendConfig
from hermes_actors.errors import ErrorCode, HermesError, Refused, Unavailable
from hermes_actors.model.message import Headers, Message
from hermes_actors.publisher.answers import (
    SHUTTING_DOWN,
    Abandoned,
    Answer,
    Replayed,
    error_answer,
    status_of,
    too_long_for_server,
    too_long_for_topic,
)
from hermes_actors.publisher.authentication import PublishSecurity, forbidden, may_publish
from hermes_actors.publisher.batches import Batches
from hermes_actors.publisher.deadlines import Deadlines
from hermes_actors.publisher.demands import Demand, Demands, Head
from hermes_actors.publisher.drain import Drain
from hermes_actors.publisher.idempotency import Claim
from hermes_actors.publisher.measures import FrontendMeasures
from hermes_actors.publisher.pending import CHUNKED, Pending, Route, Tally, without_schema
from hermes_actors.publisher.quota import Quotas
from hermes_actors.runtime.clock import Clock, IdSource
from hermes_actors.security.account import Account
from hermes_actors.status.previews import Previews

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
        deadlines: Deadlines,
        measures: FrontendMeasures,
        clock: Clock,
        ids: IdSource,
        doubt_about: Callable[[str], str] = lambda _topic: "",
    ) -> None:
        self._routes = routes
        self._doubt_about = doubt_about
        self._drain = drain
        self._tally = tally
        self._deadlines = deadlines
        self._measures = measures
        self._dc = measures.dc
        self._listeners = tally.listeners
        self._now_s = clock.monotonic_s
        self._now_ms = clock.now_ms
        self._message_id = ids.message_id
        self._enforces_size = config.force_topic_max_message_size
        self.body_bytes_max = config.body_bytes_max
        self._demands = Demands(config, clock, measures.dc)
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
        self.batches = Batches(config, self, deadlines, clock, ids)
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
        notify: Callable[[Pending], None],
    ) -> Pending | Answer:
        """Check what is known before the body: the answer at once, or a publish that wants it.

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
        demand = None
        if self._reads_every_head or not head.is_plain:
            try:
                demand = self._demands.read(topic, route.log_topic, message_id, key, head)
            except HermesError as error:
                return self._refusal(route, error, message_id)
            message_id = demand.model.id
            if demand.claim is not None:
                notify = partial(self._conclude, demand.claim, notify)
        pending = Pending(
            message_id,
            route,
            started_s,
            key,
            expected_bytes,
            route.limits,
            notify,
            demand,
            1,
            self._now_ms(),
        )
        self._tally.in_flight += 1
        self._deadlines.add(pending)
        for listener in self._listeners:
            listener.admitted((pending,))
        return pending

    def hand_over(self, pending: Pending, body: bytes) -> None:
        """Check the body: its length, the quota, what the head asks for, and last what its topic
        demands, which may take its time. Then it goes to the topic's producer.

        Whatever comes of it, `notify` is called once, perhaps before this returns.
        """
        if pending.is_done:
            return
        pending.validating()
        route = pending.route
        size = len(body)
        expected = pending.expected_bytes
        if (expected != size and expected != CHUNKED) or self._enforces_size:
            refusal = self._length_error(route, expected, size)
            if refusal is not None:
                pending.settle(refusal)
                return
        if self._quotas is not None:
            violation = self._quotas.count(route.name, size, self._now_s())
            if violation is not None:
                pending.settle(violation)
                return
        demand = pending.demand
        if demand is None:
            message = Message(pending.id, body, pending.started_ms, pending.key, (), self._dc)
        else:
            taken = self._taken(pending, demand, body)
            if taken is None:
                return
            message = msgspec.structs.replace(taken, published_at_ms=pending.started_ms)
            size = len(message.body)
        if route.validate is None:
            self._queue(pending, (message,), message.key, size)
        else:
            route.validate(message, partial(self._validated, pending, message))

    def _taken(self, pending: Pending, demand: Demand, body: bytes) -> Message | None:
        """The message that its head and this body make; None when it was settled instead."""
        try:
            taken = self._demands.take(demand, body)
        except HermesError as error:
            pending.settle(error)
            return None
        if isinstance(taken, Message):
            return taken
        pending.settle(Replayed(taken))
        return None

    def _validated(self, pending: Pending, message: Message, error: HermesError | None) -> None:
        """The topic's own check has ended, in this turn or in a later one."""
        if error is not None:
            pending.settle(error)
        elif not pending.is_done:
            self._queue(pending, (message,), message.key, len(message.body))

    def _queue(
        self, pending: Pending, messages: Sequence[Message], key: bytes | None, size: int
    ) -> None:
        """All checks have passed: the topic's producer has it from now on."""
        route = pending.route
        previews = self.previews
        if previews is not None and previews.wants(route.log_topic):
            previews.add(route.log_topic, messages[0])
        pending.queued(messages, key, size)
        if not route.is_open:
            pending.settle(_unavailable(route, "its producer is restarting after a failure"))
            return
        try:
            route.ref.tell(pending)
        except MailboxFull:
            pending.settle(_unavailable(route, "too many messages wait to be stored"))
        except MailboxClosed:
            pending.settle(_unavailable(route, "its producer is being stopped"))

    def _conclude(self, claim: Claim, notify: Callable[[Pending], None], pending: Pending) -> None:
        """A publish with an Idempotency-Key is settled: remember its success, and go on."""
        assert pending.outcome is not None, "it is settled"
        claim.conclude(status_of(pending.outcome, pending.route.name), self._now_s())
        notify(pending)

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
        if route.validate is not None:
            return self._refusal(route, without_schema(route.name), message_id)
        return route

    def hand_over_batch(
        self, account: Account | None, pending: Pending, messages: Sequence[Message]
    ) -> HermesError | None:
        """Check messages of a batch that go one way, and give them to their topic's producer;
        `notify` is called once. Why the batch has to end, None when it may go on.
        """
        route = pending.route
        pending.validating()
        if self._routes.get(route.name) is not route:
            gone = self._gone(route.name)
            pending.settle(gone)
            return gone
        auth = route.topic.auth
        if auth.enabled and not may_publish(auth, account):
            # A stream may last for long, and the topic may have changed since it began.
            pending.settle(forbidden(route.name, account))
            return None
        size = pending.expected_bytes
        if self._quotas is not None:
            now_s = self._now_s()
            # As for single messages, what is refused before it is looked at does not count: a
            # stream that goes on all the same would keep the topic above its quota for ever.
            violation = self._quotas.refusal(route.name, now_s) or self._quotas.count(
                route.name, size, now_s
            )
            if violation is not None:
                pending.settle(violation)
                return None
        self._queue(pending, messages, pending.key, size)
        return None

    def common(self, head: Head) -> Message:
        """A message that has all that the headers of a batch say for each of its messages."""
        return self._demands.common(head)

    def pick(self, pairs: list[tuple[str, str]]) -> Headers:
        """Which of a message's own headers travel with it."""
        return self._demands.pick(pairs)

    def refuse_batch(self, route: Route, error: HermesError) -> Answer:
        """The answer to a batch that is not taken."""
        answer = self._refusal(route, error, self._message_id())
        return msgspec.structs.replace(answer, closes=True)

    def refuse_body(self, pending: Pending, received: int) -> None:
        """End a publish whose body, of no announced length, grows beyond the hard bound."""
        pending.settle(too_long_for_server(f"{received} bytes or more", self.body_bytes_max))

    def abandon(self, pending: Pending) -> None:
        """The publisher left before the body was complete; nobody is told."""
        pending.settle(Abandoned())

    def answer(self, pending: Pending) -> Answer:
        """The answer to a settled publish."""
        answer = pending.answer
        if self.tells_quota and answer.status != TOO_MANY_BYTES:
            told = self.quota_headers(pending)
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

    def quota_headers(self, pending: Pending) -> tuple[tuple[str, str], ...]:
        """What the answer to an admitted publish says of its topic's quota."""
        assert self._quotas is not None, "there are no quotas to tell of"
        return self._quotas.headers(pending.route.name, self._now_s())

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


def _unavailable(route: Route, reason: str) -> Unavailable:
    return Unavailable(
        f"Message for topic {route.name} was not stored: {reason}; try again", ErrorCode.OTHER
    )
