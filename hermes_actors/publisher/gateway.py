"""Checks a publish, step by step, and hands it over to the topic's producer.

Synchronous: an edge calls `admit` when it has the headers and `hand_over` when it has the body;
`notify` reports the outcome. It never waits and never touches a log. The code behind it sees
messages, and nothing of HTTP.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from hermes_actors.actors.mailbox import MailboxClosed, MailboxFull
from hermes_actors.config import FrontendConfig
from hermes_actors.errors import ErrorCode, HermesError, Refused, Unavailable
from hermes_actors.model.message import Message, carrying, trace_of
from hermes_actors.model.messages import all_carrying
from hermes_actors.publisher.answers import (
    SHUTTING_DOWN,
    Answer,
    Replayed,
    error_answer,
    status_of,
    too_long_for_server,
    too_long_for_topic,
)
from hermes_actors.publisher.authentication import PublishSecurity, forbidden, may_publish
from hermes_actors.publisher.deadlines import Deadlines
from hermes_actors.publisher.demands import Demands, Head
from hermes_actors.publisher.drain import Drain
from hermes_actors.publisher.idempotency import KeyClaim
from hermes_actors.publisher.measures import FrontendMeasures
from hermes_actors.publisher.pending import CHUNKED, Pending, Route
from hermes_actors.publisher.quota import Quotas
from hermes_actors.runtime.clock import Clock, IdSource
from hermes_actors.schema.validation import Checked
from hermes_actors.security.account import Account


class Gateway:
    """The node's only entry for messages, shared by all edges.

    `routes` is the router's own mapping, which changes while the node runs. `doubt_about` says why
    a topic without a route may exist nevertheless; empty string if nothing suggests it.
    """

    def __init__(
        self,
        config: FrontendConfig,
        routes: Mapping[str, Route],
        drain: Drain,
        deadlines: Deadlines,
        measures: FrontendMeasures,
        clock: Clock,
        ids: IdSource,
        doubt_about: Callable[[str], str] = lambda _topic: "",
    ) -> None:
        self.clock = clock
        self.ids = ids
        self.body_bytes_max = config.body_bytes_max
        self.demands = Demands(config, clock, measures.dc)
        self.security: PublishSecurity | None = None
        """Identifies the publisher, before `admit`. If None, everybody is a guest."""
        self._routes = routes
        self._doubt_about = doubt_about
        self.drain = drain
        self._deadlines = deadlines
        self._measures = measures
        self._dc = measures.dc
        self._now_s = clock.monotonic_s
        self._now_ms = clock.now_ms
        self._message_id = ids.message_id
        self._enforces_size = config.force_topic_max_message_size
        self._reads_every_head = self.demands.reads_every_head
        self._quotas: Quotas | None = None
        if config.throughput.type != "unlimited":
            self._quotas = Quotas(config.throughput, clock.monotonic_s())

    def admit(
        self,
        topic: str,
        expected_bytes: int,
        key: bytes | None,
        head: Head,
        notify: Callable[[Pending], None],
        *,
        is_patient: bool = False,
    ) -> Pending | Answer:
        """Make the checks that need no body. Return an answer, or a publish that waits for its
        body. With `is_patient` the log has the time that it has for batches.

        `expected_bytes` is the announced size of the body, CHUNKED or ABSENT. The time limit starts
        here; `notify` may be called before the body has arrived.
        """
        route = self._route_for(topic, head)
        if isinstance(route, Answer):
            return route
        route.measures.requests.value += 1
        self._measures.requests.value += 1
        if expected_bytes > self.body_bytes_max:
            error = too_long_for_server(f"{expected_bytes} bytes", self.body_bytes_max)
            return self.refuse(error, route, closes=True)
        started_s = self._now_s()
        if self._quotas is not None:
            violation = self._quotas.refusal(topic, started_s)
            if violation is not None:
                return self.refuse(violation, route)
        message_id = self._message_id()
        demand = trace = None
        if self._reads_every_head or not head.is_plain:
            try:
                demand = self.demands.read(topic, route.log_topic, message_id, key, head)
            except HermesError as error:
                return self.refuse(error, route)
            message_id = demand.model.id
            trace = trace_of(demand.model)
            if demand.claim is not None:
                notify = partial(self._conclude, demand.claim, notify)
        pending = Pending(
            message_id,
            route,
            started_s,
            key,
            expected_bytes,
            route.batch_limits if is_patient else route.limits,
            notify,
            head,
            demand,
            1,
            self._now_ms(),
            trace=trace,
        )
        self.begin(route, (pending,))
        return pending

    def begin(self, route: Route, pendings: Sequence[Pending]) -> None:
        """Start the deadlines of these pendings, all of one topic. Each is settled by its deadline
        at the latest.
        """
        self.drain.in_flight += len(pendings)
        for pending in pendings:
            self._deadlines.add(pending)
        for listener in route.listeners:
            listener.admitted(pendings)

    def hand_over(self, pending: Pending, body: bytes) -> None:
        """Check the body (its length, the quota, the demands of the head, and last the topic's
        schema, which may take a while) and queue the message for the topic's producer.

        In every case `notify` is called once, perhaps before this returns.
        """
        if pending.is_done:
            return
        pending.validating()
        route = pending.route
        size = len(body)
        expected = pending.expected_bytes
        if expected not in (size, CHUNKED):
            pending.settle(
                Refused(
                    f"Content-Length does not match the received body: header {expected}, "
                    f"received {size}"
                )
            )
            return
        if self._enforces_size and size > route.topic.max_message_size:
            pending.settle(too_long_for_topic(size, route.topic))
            return
        if self._quotas is not None:
            violation = self._quotas.count(route.name, size, self._now_s())
            if violation is not None:
                pending.settle(violation)
                return
        head, demand, trace = pending.head, pending.demand, pending.trace
        if demand is None:
            message = Message(pending.id, body, pending.started_ms, pending.key, (), self._dc)
        else:
            try:
                taken = self.demands.take(demand, body)
            except HermesError as error:
                pending.settle(error)
                return
            if isinstance(taken, int):
                pending.settle(Replayed(taken))
                return
            message = msgspec.structs.replace(taken, published_at_ms=pending.started_ms)
            size = len(message.body)
        if trace is not None:
            message = carrying(message, trace)
        validate = route.validate
        if validate is None:
            self._queue(pending, (message,), message.key, size)
            return
        assert head is not None, "it is no part of a batch"
        body_head = head.body_head if demand is None else demand.body_head(message)
        done = partial(self._validated, pending)
        validate(message, body_head, done, lambda: not pending.is_done)

    def _validated(self, pending: Pending, outcome: Checked) -> None:
        """Queue the message as its topic's schema check returned it, now or later; settle it if the
        check failed.
        """
        if isinstance(outcome, HermesError):
            pending.settle(outcome)
        elif not pending.is_done:
            size = len(outcome.body)
            if size > self.body_bytes_max:
                # The defaults that its schema fills in may be large.
                pending.settle(too_long_for_server(f"{size} bytes in Avro", self.body_bytes_max))
            else:
                self._queue(pending, (outcome,), outcome.key, size)

    def _queue(
        self, pending: Pending, messages: Sequence[Message], key: bytes | None, size: int
    ) -> None:
        """Hand checked messages to the topic's producer, or settle them as unavailable."""
        route = pending.route
        pending.queued(messages, key, size)
        reason = "its producer is restarting after a failure"
        if route.is_open:
            try:
                route.ref.tell(pending)
            except MailboxFull:
                reason = "too many messages wait to be stored"
            except MailboxClosed:
                reason = "its producer is being stopped"
            else:
                return
        pending.settle(
            Unavailable(
                f"Message for topic {route.name} was not stored: {reason}; try again",
                ErrorCode.OTHER,
            )
        )

    def _conclude(
        self, claim: KeyClaim, notify: Callable[[Pending], None], pending: Pending
    ) -> None:
        """Record the success of a publish with an Idempotency-Key, then notify its edge."""
        assert pending.outcome is not None, "it is settled"
        claim.conclude(status_of(pending.outcome, pending.route.name), self._now_s())
        notify(pending)

    def admit_batch(self, topic: str, head: Head) -> Route | Answer:
        """Check the headers of a batch. Return its route, or an answer that refuses it."""
        route = self._route_for(topic, head)
        if isinstance(route, Answer):
            return route
        violation: HermesError | None = None
        if self._quotas is not None:
            violation = self._quotas.refusal(topic, self._now_s())
        if violation is None and route.validate is not None:
            violation = route.validate.refusal
        return route if violation is None else self.refuse(violation, route)

    def hand_over_batch(
        self, account: Account | None, pending: Pending, messages: Sequence[Message]
    ) -> HermesError | None:
        """Check messages of a batch that share a partition, and give them to their topic's
        producer.

        `notify` is called once. Returns an error if the batch has to end, else None.
        """
        route = pending.route
        pending.validating()
        if pending.trace is not None:
            messages = all_carrying(messages, pending.trace)
        if self._routes.get(route.name) is not route:
            gone = self._gone(route.name)
            pending.settle(gone)
            return gone
        auth = route.topic.auth
        if auth.enabled and not may_publish(auth, account):
            # A stream may be open for long, and the topic may have changed since it began.
            pending.settle(forbidden(route.name, account))
            return None
        size = pending.expected_bytes
        if self._quotas is not None:
            now_s = self._now_s()
            # As for single messages, a message that is refused before the quota counts it costs
            # nothing. Otherwise a stream that goes on regardless would keep the topic above its
            # quota for ever.
            violation = self._quotas.refusal(route.name, now_s) or self._quotas.count(
                route.name, size, now_s
            )
            if violation is not None:
                pending.settle(violation)
                return None
        self._queue(pending, messages, pending.key, size)
        return None

    def refuse(self, error: HermesError, route: Route | None, *, closes: bool = False) -> Answer:
        """Return the answer to a publisher refused before admission, and count it for the route
        (None: for no topic).
        """
        answer = error_answer(error, self._message_id(), closes=closes)
        if route is None:
            self._measures.status(answer.status).add()
        else:
            route.measures.answered(answer.status, 1)
        return answer

    def _route_for(self, topic: str, head: Head) -> Route | Answer:
        """Look up the topic's route. Returns an answer if there is none, or the author may not
        publish to it.
        """
        if self.drain.is_refusing:
            return SHUTTING_DOWN
        route = self._routes.get(topic)
        if route is None:
            return self.refuse(self._unknown(topic), None)
        auth = route.topic.auth
        if auth.enabled and not may_publish(auth, head.account):
            return self.refuse(forbidden(topic, head.account), None, closes=True)
        return route

    def _unknown(self, topic: str) -> HermesError:
        # The catalog may be a stand-in from another datacentre that does not have this topic yet,
        # or it may be behind. A publisher gives up after a 404.
        doubt = self._doubt_about(topic)
        if doubt:
            return Unavailable(
                f"Topic {topic} is not known here, but may exist: {doubt}; try again"
            )
        return Refused(f"Topic not found: {topic}", ErrorCode.TOPIC_NOT_EXISTS)

    def _gone(self, topic: str) -> HermesError:
        """Return the error for a batch whose topic was deleted, or deleted and created again, since
        it began.
        """
        if topic not in self._routes:
            return self._unknown(topic)
        return Unavailable(
            f"Topic {topic} was deleted and created again while this batch was open; send what was "
            "not stored in another request"
        )
