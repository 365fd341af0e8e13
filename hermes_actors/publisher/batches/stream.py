"""Many messages in one request: taken as they come, each answered with a line, in order.

Synchronous, like the gateway: an edge feeds what it reads, hands over as far as there is room, and
takes the lines that are due. Nothing here waits; `wake` tells an edge that it may go on.

What is under way is bounded in three ways: each stream owes its publisher a bounded number of
answers, each topic has a few batches under way, and all streams together a number of bytes. Where
one of these is reached the stream stops to read, and the publisher's own connection holds it back.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from hermes_actors.config import FrontendConfig
from hermes_actors.errors import HermesError, Refused, Unavailable
from hermes_actors.model.message import Message, trace_of
from hermes_actors.model.messages import MessageRun
from hermes_actors.model.partitioner import partition_of
from hermes_actors.publisher.answers import Answer, too_long_for_topic
from hermes_actors.publisher.batches.forms import Form, Parcel, form_of
from hermes_actors.publisher.batches.permits import Permits
from hermes_actors.publisher.batches.slices import LINE_BYTES, Slice, end_line
from hermes_actors.publisher.demands import Head, body_head_of
from hermes_actors.publisher.gateway import Gateway
from hermes_actors.publisher.pending import Pending, Route
from hermes_actors.schema.loop_limits import UNITS_MAX
from hermes_actors.schema.validation import BodyHead, Outcome
from hermes_actors.security.account import Account

_APPENDS_A_TOPIC = 2
"""The appends that batches have under way for a topic: one is on its way, one is ready."""
_TOO_COSTLY = Refused(
    "Message is too large, or its topic's schema too costly, to be checked within a batch; "
    "publish it by itself"
)
_MESSAGES_MAX = 1_000
"""In one slice, so that the first are answered while the last of a piece are taken apart."""


Soon = Callable[[Callable[[], None]], None]


class Streams:
    """The streams of one node that are open, and the bounds that they share.

    `messages_max` and `bytes_max` are those of a slice; `node` counts bytes in flight.
    """

    def __init__(self, config: FrontendConfig, gateway: Gateway) -> None:
        self.gateway = gateway
        self.config = config
        self.messages_max = min(config.batch_records_max, _MESSAGES_MAX)
        self.bytes_max = config.batch_bytes_max
        self.idle_s = config.batch_idle_timeout_ms / 1_000
        self.node = Permits(config.batch_in_flight_bytes_max)
        self._topics: WeakKeyDictionary[Route, Permits] = WeakKeyDictionary()
        self._open: dict[BatchStream, None] = {}

    def __len__(self) -> int:
        """How many streams are open."""
        return len(self._open)

    def of_topic(self, route: Route) -> Permits:
        """Return the permits for the topic's messages in flight, the same for as long as it has
        this route.
        """
        total = _APPENDS_A_TOPIC * self.config.batch_records_max
        return self._topics.setdefault(route, Permits(total))

    def open(self, topic: str, key: bytes | None, head: Head, soon: Soon) -> "BatchStream | Answer":
        """Check what the headers say: the answer at once, or a stream that wants its body. `soon`
        calls what it is given in another turn of the edge's loop.
        """
        route = self.gateway.admit_batch(topic, head)
        if isinstance(route, Answer):
            return route
        try:
            stream = self._stream(route, key, head, soon)
        except HermesError as error:
            return self.gateway.refuse(error, route, closes=True)
        self._open[stream] = None
        route.drain.in_flight += 1
        return stream

    def end_all(self) -> None:
        """The node is about to end: streams read no further, and answer what they have read."""
        error = Unavailable(
            "The server is shutting down: lines after this were not read; send them again, to "
            "another node"
        )
        for stream in list(self._open):
            stream.stop(error)

    def _stream(self, route: Route, key: bytes | None, head: Head, soon: Soon) -> "BatchStream":
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
        if len(self._open) >= self.config.batch_streams_max:
            error = Unavailable(
                f"{len(self._open)} batches are being published on this node; try again later"
            )
            error.headers = (("retry-after", "1"),)
            raise error
        demands = self.gateway.demands
        common = demands.common(head)
        form = form_of(
            head.get("content-type"),
            self.config.body_bytes_max,
            self.config.header_bytes_max,
            common,
            demands.pick,
            takes_events=self.config.cloud_events,
        )
        # Each message of a batch is JSON, whatever form the batch has.
        body_head = body_head_of(head, "application/json")
        return BatchStream(self, route, form, key, head.account, common, body_head, soon)

    def closed(self, stream: "BatchStream") -> None:
        """Record that a stream has ended."""
        del self._open[stream]
        stream.route.drain.in_flight -= 1


@dataclass(eq=False)
class BatchStream:
    """One request. Made by `Streams.open`; `close` must be called when the request has ended.

    `key` is the Partition-Key header's, for all messages that have none of their own, `common` has
    what the request's headers say for all, `body_head` how their bodies are to be read. `wake` is
    called when there is room again, or a line.
    """

    streams: Streams
    route: Route
    form: Form
    key: bytes | None
    account: Account | None
    common: Message
    body_head: BodyHead
    soon: Soon

    def __post_init__(self) -> None:
        self.wake: Callable[[], None] = _nobody
        self._gateway = self.streams.gateway
        self._trace = trace_of(self.common)
        self._parcels: deque[Parcel] = deque()
        self._slices: deque[Slice] = deque()
        self._owed_bytes = 0
        self._unsent_bytes = 0
        # What is handed over next, while it waits for room: which permits it has, which it lacks.
        self._next: Parcel | None = None
        self._next_units = 0
        self._taken: list[tuple[Permits, int]] = []
        self._wanted: list[tuple[Permits, int]] = []
        self._is_waiting = False
        self.is_over = False
        """True when no more is read: the body has ended, or the stream is to end before it."""
        self.is_closed = False
        """True when its request has ended."""
        self.is_left = False
        """True when the publisher has gone."""
        self._last_line = b""

    # Reading.

    def feed(self, data: bytes) -> None:
        """Take a piece of the body."""
        self._add(self.form.feed(data))

    def finish(self) -> None:
        """Take the end of the body."""
        self._add(self.form.finish())
        self.is_over = True

    def stop(self, error: HermesError) -> None:
        """Read no further; what was read is answered, and the last line says why."""
        if not self.is_over:
            self.is_over = True
            self._last_line = end_line(error)
            self.wake()

    def leave(self) -> None:
        """Record that the publisher has gone: what was read is stored, and nobody is answered."""
        self.is_over = self.is_left = True
        self._last_line = b""
        self._slices.clear()

    def go_on(self) -> bool:
        """Hand over what has been read, as far as there is room. True when all of it is, and more
        may be read; else `wake` is called when it is time to try again.
        """
        units = 0
        while self._next is not None or self._cut():
            units += self._next_units
            if units > UNITS_MAX and units > self._next_units:
                # Checking by the topic's schema: others have their turn first.
                self.soon(self._wake_now)
                return False
            if not self._may_owe() or not self._has_permits():
                return False
            self._send()
        return self._may_owe()

    def _wake_now(self) -> None:
        """Call what `wake` is by now: the stream may have been closed meanwhile."""
        self.wake()

    def close(self) -> None:
        """End the stream with its request, one way or another; only the first call counts."""
        if not self.is_closed:
            self.is_closed = self.is_over = True
            self.wake = _nobody
            self._parcels.clear()
            if not self._is_waiting:
                # Who waits for a permit gives them back when it comes.
                _give_back(self._taken)
            self.streams.closed(self)

    # Writing.

    def take_lines(self) -> bytes:
        """Return the lines that are due, b"" if none is. `sent` must be told when they are out."""
        slices = self._slices
        lines: list[bytes] = []
        while slices and not slices[0].left and self._unsent_bytes < self.streams.bytes_max:
            due = slices.popleft()
            part = due.lines(self.route.name)
            self._owed_bytes -= len(due.ids) * LINE_BYTES
            self._unsent_bytes += len(part)
            lines.append(part)
        if self.is_answered and self._last_line:
            lines.append(self._last_line)
            self._last_line = b""
        return b"".join(lines)

    def sent(self) -> None:
        """Record that all that `take_lines` gave has been sent; call `wake` if that lets a full
        stream go on.
        """
        was_full = not self._may_owe()
        self._unsent_bytes = 0
        if was_full:
            self.wake()

    @property
    def is_answered(self) -> bool:
        """True when nothing is left to be answered, now or later, but perhaps the last line."""
        return self.is_over and not (self._slices or self._parcels or self._next)

    # Inside.

    def _add(self, parcel: Parcel) -> None:
        if parcel.bodies:
            self._parcels.append(parcel)
        if failure := self.form.splitter.failure:
            self.stop(Refused(failure[0].upper() + failure[1:]))

    def _may_owe(self) -> bool:
        owed_bytes = self._owed_bytes + self._unsent_bytes
        return self.is_left or owed_bytes < self.streams.config.batch_answer_bytes_max

    def _cut(self) -> bool:
        """Make ready the next slice's messages; False when nothing waits."""
        if not self._parcels or self.is_closed:
            return False
        streams, parcel = self.streams, self._parcels[0]
        count = min(len(parcel.bodies), streams.messages_max)
        while count > 1 and parcel.size_of_first(count) > streams.bytes_max:
            count //= 2
        count = self._affordable(parcel, count)
        if count == len(parcel.bodies):
            self._parcels.popleft()
        else:
            self._parcels[0] = parcel.at(range(count, len(parcel.bodies)))
            parcel = parcel.at(range(count))
        self._next = parcel
        self._taken = []
        self._wanted = [
            (streams.of_topic(self.route), count),
            (streams.node, parcel.size_of_first(count)),
        ]
        return True

    def _affordable(self, parcel: Parcel, count: int) -> int:
        """How many of these may be checked by their schema in one turn; one at least."""
        validate = self.route.validate
        self._next_units = 0
        if validate is None:
            return count
        for at, body in enumerate(parcel.bodies[:count]):
            units = validate.units(body)
            # One that is too costly is refused without a look.
            self._next_units += units if units <= UNITS_MAX else 0
            if self._next_units > UNITS_MAX:
                return max(at, 1)
        return count

    def _has_permits(self) -> bool:
        """Take the next slice's permits, the topic's and then the node's."""
        while self._wanted and not self._is_waiting:
            permits, units = self._wanted[0]
            self._is_waiting = not permits.take(units, self._got)
            if not self._is_waiting:
                self._taken.append(self._wanted.pop(0))
        return not self._wanted

    def _got(self) -> None:
        """Take the permit that was waited for; give all back when the stream is closed."""
        self._is_waiting = False
        self._taken.append(self._wanted.pop(0))
        if self.is_closed:
            _give_back(self._taken)
        else:
            self.wake()

    def _send(self) -> None:
        """Hand the next slice over; its permits are given back when it has been answered."""
        parcel, self._next = self._next, None
        assert parcel is not None, "a slice waits"
        taken, self._taken = self._taken, []
        count = len(parcel.bodies)
        gateway, measures = self._gateway, self.route.measures
        measures.requested(count)
        made = gateway.ids.message_ids(count)
        if parcel.ids:
            made = [own or new for own, new in zip(parcel.ids, made, strict=True)]
        parcel.ids = made
        if parcel.keys is not None:
            parcel.keys = [self.key if key is None else key for key in parcel.keys]
        at_ms = gateway.clock.now_ms()
        self._refuse_large(parcel)
        self._refuse_unfit(parcel, at_ms)
        for error in parcel.refused.values():
            measures.answered(error.status, 1)

        def done() -> None:
            _give_back(taken)
            self.wake()

        part = Slice(parcel.ids, parcel.refused, done)
        if not self.is_left:
            self._slices.append(part)
            self._owed_bytes += count * LINE_BYTES
        ways: list[tuple[Sequence[int] | None, Parcel]] = [(None, parcel)]
        if parcel.keys is not None or parcel.refused:
            ways = [(places, parcel.at(places)) for places in self._places(parcel)]
        self._hand_over(part, ways, at_ms)
        if not ways:
            done()

    def _hand_over(
        self, part: Slice, ways: list[tuple[Sequence[int] | None, Parcel]], at_ms: int
    ) -> None:
        """Give the messages to their topic's producer, those that go one way together."""
        gateway, route = self._gateway, self.route
        started_s = gateway.clock.monotonic_s()
        each: list[tuple[Pending, Sequence[Message]]] = []
        for places, parcel in ways:
            messages = self._messages(parcel, at_ms)
            first = messages[0]
            size = sum(map(len, parcel.bodies))
            pending = Pending(
                first.id,
                route,
                started_s,
                first.key,
                size,
                route.batch_limits,
                part.ended,
                count=len(messages),
                trace=self._trace,
            )
            part.parts.append((pending, places))
            each.append((pending, messages))
        part.left = len(each)
        gateway.begin(route, [pending for pending, _ in each])
        for pending, messages in each:
            end = gateway.hand_over_batch(self.account, pending, messages)
            if end is not None:
                self.stop(end)

    def _refuse_large(self, parcel: Parcel) -> None:
        """Refuse the messages that the topic does not take, where that is checked at all."""
        limit = self.route.topic.max_message_size
        if (
            self.streams.config.force_topic_max_message_size
            and max(map(len, parcel.bodies)) > limit
        ):
            for at, body in enumerate(parcel.bodies):
                if len(body) > limit:
                    parcel.refused[at] = too_long_for_topic(len(body), self.route.topic)

    def _refuse_unfit(self, parcel: Parcel, at_ms: int) -> None:
        """Refuse the messages that do not fit the topic's schema, or would take long to be checked:
        the others of a batch do not wait for one. What is stored of those that fit takes their
        place.
        """
        validate = self.route.validate
        if validate is None:
            return
        grown_bytes = 0
        for at, message in enumerate(self._messages(parcel, at_ms)):
            if at in parcel.refused:
                continue
            outcome: Outcome = _TOO_COSTLY
            if validate.units(message.body) <= UNITS_MAX:
                outcome = validate.check(message, self.body_head)
            if isinstance(outcome, HermesError):
                parcel.refused[at] = outcome
            elif outcome is not message:
                grown_bytes += max(0, len(outcome.body) - len(message.body))
                if grown_bytes > self.streams.bytes_max:
                    # What a schema fills in may be a multiple of what has come.
                    parcel.refused[at] = _TOO_COSTLY
                    continue
                if parcel.models is None:
                    parcel.models = [self.common] * len(parcel.bodies)
                parcel.bodies[at], parcel.models[at] = outcome.body, outcome

    def _messages(self, parcel: Parcel, at_ms: int) -> Sequence[Message]:
        ids, bodies, models = parcel.ids, parcel.bodies, parcel.models
        if models is None:
            model = replace(self.common, published_at_ms=at_ms)
            keys = self.key if parcel.keys is None else parcel.keys
            return MessageRun(ids, bodies, keys, model)
        of_each = parcel.keys or [self.key] * len(ids)
        return [
            replace(model, id=own.decode(), body=body, key=key, published_at_ms=at_ms)
            for model, own, body, key in zip(models, ids, bodies, of_each, strict=True)
        ]

    def _places(self, parcel: Parcel) -> list[list[int]]:
        """The places of the messages that are not refused, by where they go."""
        refused, keys, partitions = parcel.refused, parcel.keys, self.route.partitions
        if self.route.topic.fallback_to_remote_datacenter_enabled:
            # Another datacentre may have another number of partitions: each key goes alone.
            partitions = 0
        places: dict[int | bytes | None, list[int]] = {}
        for at in range(len(parcel.bodies)):
            if at not in refused:
                key = keys[at] if keys else self.key
                where = partition_of(key, partitions) if partitions and key is not None else key
                places.setdefault(where, []).append(at)
        return list(places.values())


def _give_back(taken: list[tuple[Permits, int]]) -> None:
    for permits, units in reversed(taken):
        permits.give_back(units)


def _nobody() -> None:
    """Do nothing: nobody waits."""
