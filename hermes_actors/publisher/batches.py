"""The batch streams of one node: who may open one, and what bounds all of them together."""

from collections.abc import Sequence
from typing import Protocol

from hermes_actors.config import FrontendConfig
from hermes_actors.errors import HermesError, Refused, Unavailable
from hermes_actors.model.message import Headers, Message
from hermes_actors.publisher.answers import Answer
from hermes_actors.publisher.batch import BatchStream, Limits
from hermes_actors.publisher.deadlines import Deadlines
from hermes_actors.publisher.demands import Head
from hermes_actors.publisher.forms import form_of
from hermes_actors.publisher.pending import Pending, Route
from hermes_actors.publisher.permits import Permits
from hermes_actors.runtime.clock import Clock, IdSource
from hermes_actors.security.account import Account

_APPENDS_A_TOPIC = 2
"""What batches have under way for a topic: one append is on its way, one is ready."""
_MESSAGES_MAX = 1_000
"""In one bundle, so that the first are answered while the last of a piece are taken apart."""


class Way(Protocol):
    """The way of a batch through the gateway."""

    def admit_batch(self, topic: str, head: Head) -> Route | Answer:
        """Check what the headers say, but of the body's form."""

    def refuse_batch(self, route: Route, error: HermesError) -> Answer:
        """The answer to a batch that is not taken."""

    def common(self, head: Head) -> Message:
        """A message that has all that the request's headers say for each of its messages."""

    def pick(self, pairs: list[tuple[str, str]]) -> Headers:
        """Which of a message's own headers travel with it."""

    def hand_over_batch(
        self, account: Account | None, pending: Pending, messages: Sequence[Message]
    ) -> HermesError | None:
        """Give these to their topic's producer, if this author may still publish to the topic;
        `pending` is settled, whatever comes of it. Why the batch has to end, None when it may go
        on.
        """


class Batches:
    """The streams that are open, and the bounds that they share."""

    def __init__(
        self,
        config: FrontendConfig,
        way: Way,
        deadlines: Deadlines,
        clock: Clock,
        ids: IdSource,
    ) -> None:
        self._way = way
        self._deadlines = deadlines
        self._clock = clock
        self._make_ids = ids.message_ids
        self._bytes_max = config.body_bytes_max
        self._streams_max = config.batch_streams_max
        self.idle_s = config.batch_idle_timeout_ms / 1_000
        self._takes_events = config.cloud_events
        self._messages_a_topic = _APPENDS_A_TOPIC * config.batch_records_max
        self._limits = Limits(
            messages_max=min(config.batch_records_max, _MESSAGES_MAX),
            bytes_max=config.batch_bytes_max,
            answer_bytes_max=config.batch_answer_bytes_max,
            node=Permits(config.batch_in_flight_bytes_max),
            enforces_size=config.force_topic_max_message_size,
        )
        self._streams: dict[BatchStream, None] = {}

    def __len__(self) -> int:
        """How many streams are open."""
        return len(self._streams)

    def open(self, topic: str, key: bytes | None, head: Head) -> BatchStream | Answer:
        """Check what the headers say: the answer at once, or a stream that wants its body."""
        route = self._way.admit_batch(topic, head)
        if isinstance(route, Answer):
            return route
        try:
            return self._open(route, key, head)
        except HermesError as error:
            return self._way.refuse_batch(route, error)

    def end_all(self) -> None:
        """The node is about to end: streams read no further, and answer what they have read."""
        error = Unavailable(
            "The server is shutting down: lines after this were not read; send them again, to "
            "another node"
        )
        for stream in list(self._streams):
            stream.stop(error)

    def _open(self, route: Route, key: bytes | None, head: Head) -> BatchStream:
        if head.get("idempotency-key") is not None:
            raise Refused(
                "Idempotency-Key is for one message; in a batch give each an id, as a line of "
                "application/vnd.hermes.messages+ndjson"
            )
        if head.get("hermes-replay-id") is not None:
            raise Refused("Hermes-Replay-Id is for one message; send each in a request of its own")
        coding = head.get("content-encoding") or "identity"
        if coding.strip().lower() != "identity":
            raise Refused(
                f"Content-Encoding {coding} is not read: a batch is taken apart; send it as it is",
                status=415,
            )
        if len(self._streams) >= self._streams_max:
            error = Unavailable(
                f"{self._streams_max} batches are being published on this node; try again later"
            )
            error.headers = (("retry-after", "1"),)
            raise error
        common = self._way.common(head)
        form = form_of(
            head.get("content-type"),
            self._bytes_max,
            common,
            self._way.pick,
            takes_events=self._takes_events,
        )
        permits = route.batch_permits
        if permits is None:
            permits = route.batch_permits = Permits(self._messages_a_topic)

        def hand_over(pending: Pending, messages: Sequence[Message]) -> None:
            end = self._way.hand_over_batch(head.account, pending, messages)
            if end is not None:
                stream.stop(end)

        stream = BatchStream(
            route,
            form,
            self._limits,
            permits,
            key,
            common,
            hand_over,
            self._deadlines,
            self._make_ids,
            self._clock,
            self._closed,
        )
        self._streams[stream] = None
        route.tally.in_flight += 1
        return stream

    def _closed(self, stream: BatchStream) -> None:
        del self._streams[stream]
        stream.route.tally.in_flight -= 1
