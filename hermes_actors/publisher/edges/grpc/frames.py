"""Publishes the messages of a frame: one message as a request of HTTP, many as a batch of HTTP."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from hermes_actors.errors import HermesError
from hermes_actors.log.base import Stored
from hermes_actors.model.run import ID_BYTES
from hermes_actors.publisher.answers import (
    SHUTTING_DOWN,
    Answer,
    answer_to,
    error_answer,
    of_topic,
    too_long_for_server,
)
from hermes_actors.publisher.batches.forms import Parcel
from hermes_actors.publisher.batches.room import Need
from hermes_actors.publisher.batches.slices import Slice
from hermes_actors.publisher.batches.slicing import BatchRequest, Slicing
from hermes_actors.publisher.cloudevents import VERSION_HEADER
from hermes_actors.publisher.demands import Head, head_refusal
from hermes_actors.publisher.edges.grpc.codes import outcome_of
from hermes_actors.publisher.frontend import Frontend
from hermes_actors.publisher.pending import Pending, Route
from hermes_actors.rpc.v1 import broker_pb2
from hermes_actors.security.account import ClientCertificate

Pairs = tuple[tuple[bytes, bytes], ...]

_OF_ONE_MESSAGE = {
    *(b"idempotency-key", b"hermes-replay-id", b"hermes-replay-for", b"partition-key"),
    VERSION_HEADER.encode(),
}
"""Headers that a message has for itself: it is published alone. A call's are ignored."""
_AGAIN_S = 60.0
"""How long a stream's account is believed before its credentials are checked again."""


def _encoded(outcome: broker_pb2.PublishOutcome) -> bytes:
    # `outcomes` is field 1 of PublishResponse and of PublishedFrame, and encoded lists are joined
    # by writing one after the other.
    return broker_pb2.PublishResponse(outcomes=[outcome]).SerializeToString()


_ID = "0" * ID_BYTES
_BEGINNING, _END = _encoded(broker_pb2.PublishOutcome(message_id=_ID, http_status=201)).split(
    _ID.encode()
)


class Frame:
    """The messages of a frame, and their outcomes in order. `ended` is called once, when all are
    known.
    """

    __slots__ = ("_added", "_ended", "_left", "_parts", "_topic", "count", "sequence", "size_bytes")

    def __init__(
        self,
        request: broker_pb2.PublishStreamRequest,
        size_bytes: int,
        ended: Callable[["Frame"], None],
    ) -> None:
        self.sequence = request.sequence
        self.count = len(request.messages)
        self.size_bytes = size_bytes
        self._topic = request.topic
        self._ended = ended
        self._parts: list[Slice | Pending | Answer] = []
        self._added = 0
        # One more than is under way, until all messages have been handed over.
        self._left = 1

    def add(self, part: Slice | Pending | Answer) -> None:
        """Add the outcomes of the next messages; an Answer is that of one message."""
        self._parts.append(part)
        self._added += len(part.ids) if isinstance(part, Slice) else 1

    def fill(self, answer: Answer) -> None:
        """Add this outcome for each message that was not handed over."""
        while self._added < self.count:
            self.add(answer)

    def began(self) -> None:
        """Some messages are under way; `part_ended` follows."""
        self._left += 1

    def part_ended(self, _pending: Pending | None = None) -> None:
        """The outcomes of some messages are known."""
        self._left -= 1
        if not self._left:
            self._ended(self)

    def outcomes(self) -> bytes:
        """All outcomes, encoded as a PublishResponse."""
        return b"".join(map(self._outcomes_of, self._parts))

    def _outcomes_of(self, part: Slice | Pending | Answer) -> bytes:
        if isinstance(part, Answer):
            return _encoded(outcome_of(part))
        if isinstance(part, Pending):
            is_plain = len(part.id) == ID_BYTES and not part.route.topic.is_in_memory
            if is_plain and type(part.outcome) is Stored:
                return _BEGINNING + part.id.encode() + _END
            return _encoded(outcome_of(part.answer))
        topic = next((each.route.topic for each, _ in part.parts), None)
        if part.is_stored and topic is not None and not topic.is_in_memory:
            return _BEGINNING + (_END + _BEGINNING).join(part.ids) + _END
        answers = [
            answer_to(outcome, own.decode(), self._topic, has_body=True)
            for own, outcome in zip(part.ids, part.outcomes(), strict=True)
        ]
        if topic is not None:
            answers = [of_topic(each, topic) for each in answers]
        return b"".join([_encoded(outcome_of(each)) for each in answers])


class Publisher:
    """Hands the frames of one call over, for the client with these headers and certificate.

    `is_patient`: single messages may wait for the log as long as those of a batch.
    """

    def __init__(
        self,
        frontend: Frontend,
        pairs: Iterable[tuple[bytes, bytes]],
        certificate: ClientCertificate | None,
        *,
        is_patient: bool,
    ) -> None:
        self._frontend = frontend
        self._config = frontend.config
        self._gateway = frontend.gateway
        self._room = frontend.batches.room
        self._pairs: Pairs = tuple(pair for pair in pairs if pair[0] not in _OF_ONE_MESSAGE)
        self._certificate = certificate
        self._is_patient = is_patient
        self._head = self._head_of(())
        self._identified_s = float("-inf")

    async def hand_over(self, request: broker_pb2.PublishStreamRequest, frame: Frame) -> None:
        """Hand all messages of the frame over, which waits while the node has no room for them.
        Their outcomes come later.
        """
        topic, messages = request.topic, request.messages
        try:
            refusal = await self._identify(topic)
            if refusal is not None:
                frame.fill(refusal)
            elif len(messages) == 1:
                message = messages[0]
                self._send_alone(frame, topic, message, _pairs_of(message))
            else:
                await self._send_together(frame, topic, messages)
        finally:
            # If this was cancelled, the node stops, or the client has gone.
            frame.fill(SHUTTING_DOWN)
            frame.part_ended()

    async def _identify(self, topic: str) -> Answer | None:
        security = self._gateway.security
        if security is None:
            return None
        head = self._head
        if not security.asks(topic):
            # Its author is a guest, whoever published to another topic.
            head.account = None
            self._identified_s = float("-inf")
            return None
        now_s = self._gateway.clock.monotonic_s()
        if head.account is not None and now_s < self._identified_s + _AGAIN_S:
            return None
        # Whatever it was, it counts no longer if this fails.
        head.account = None
        refusal = await security.identify(topic, head)
        self._identified_s = now_s
        return refusal

    def _head_of(self, own: Pairs) -> Head:
        """These headers, and those of the call that they do not replace."""
        named = {name.lower(): value for name, value in own}
        inherited = [pair for pair in self._pairs if pair[0] not in named]
        return Head([*own, *inherited], {**dict(inherited), **named}, self._certificate)

    def _send_alone(
        self, frame: Frame, topic: str, message: broker_pb2.Message, own: Pairs
    ) -> None:
        head, key = self._head, message.ordering_key.encode()
        if own:
            head = self._head_of(own)
            head.account = self._head.account
        refusal = self._refusal(own, key) if own or key else None
        if refusal is not None:
            frame.add(error_answer(refusal, ""))
            return
        body = message.data
        frame.began()
        admitted = self._gateway.admit(
            topic, len(body), key or None, head, frame.part_ended, is_patient=self._is_patient
        )
        frame.add(admitted)
        if isinstance(admitted, Answer):
            frame.part_ended()
        else:
            self._gateway.hand_over(admitted, body)

    async def _send_together(
        self, frame: Frame, topic: str, messages: Sequence[broker_pb2.Message]
    ) -> None:
        route = self._gateway.admit_batch(topic, self._head)
        if isinstance(route, Answer):
            frame.fill(route)
            return
        # Messages in a row with the same headers share all that depends on them. Others are not put
        # together, because messages of a key stay in order.
        row: list[broker_pb2.Message] = []
        headers: Pairs = ()
        for message in messages:
            own = _pairs_of(message)
            if row and own != headers:
                await self._send_row(frame, route, row, headers)
                row = []
            headers = own
            row.append(message)
        await self._send_row(frame, route, row, headers)

    async def _send_row(
        self, frame: Frame, route: Route, row: Sequence[broker_pb2.Message], own: Pairs
    ) -> None:
        head = self._head
        if own:
            head = self._head_of(own)
            head.account = self._head.account
            if _is_for_one(head):
                for message in row:
                    self._send_alone(frame, route.name, message, own)
                return
        request = BatchRequest(
            route,
            None,
            head.account,
            self._gateway.demands.common(head),
            head.body_head,
        )
        slicing = Slicing(request, self._config, self._gateway, lambda _error: None)
        left: Parcel | None = self._parcel(row, own)
        while left is not None:
            count = slicing.count_of_slice(left)
            parcel, left = left, None
            if count < len(parcel.bodies):
                left = parcel.at(range(count, len(parcel.bodies)))
                parcel = parcel.at(range(count))
            await self._send_slice(frame, slicing, route, parcel)
            if left is not None or route.validate is not None:
                # The schema has checked it, which takes time: others get their turn of the loop.
                await asyncio.sleep(0)

    async def _send_slice(
        self, frame: Frame, slicing: Slicing, route: Route, parcel: Parcel
    ) -> None:
        given = asyncio.Event()
        count = len(parcel.bodies)
        need = Need(route, count, parcel.size_of_first(count), given.set)
        if not self._room.take(need):
            try:
                await given.wait()
            except asyncio.CancelledError:
                self._room.leave(need)
                raise
        frame.began()
        frame.add(slicing.send(parcel, partial(self._slice_ended, need, frame)))

    def _slice_ended(self, need: Need, frame: Frame) -> None:
        self._room.leave(need)
        frame.part_ended()

    def _parcel(self, row: Sequence[broker_pb2.Message], own: Pairs) -> Parcel:
        bodies = [message.data for message in row]
        keys: list[bytes | None] = [message.ordering_key.encode() or None for message in row]
        bytes_max = self._gateway.body_bytes_max
        refused: dict[int, HermesError] = {}
        for at, key in enumerate(keys):
            refusal: HermesError | None = None
            if own or key:
                refusal = self._refusal(own, key)
            if refusal is None and len(bodies[at]) > bytes_max:
                refusal = too_long_for_server(f"{len(bodies[at])} bytes", bytes_max)
            if refusal is not None:
                refused[at] = refusal
                bodies[at], keys[at] = b"", None
        return Parcel(bodies, refused, keys if any(keys) else None)

    def _refusal(self, own: Pairs, key: bytes | None) -> HermesError | None:
        """The error if these headers and the key are above a limit of a request's headers."""
        pairs = (*own, (b"partition-key", key)) if key else own
        return head_refusal(self._config, "", "", pairs)


def _pairs_of(message: broker_pb2.Message) -> Pairs:
    attributes = message.attributes
    return (
        tuple((name.encode(), value.encode()) for name, value in attributes.items())
        if attributes
        else ()
    )


def _is_for_one(head: Head) -> bool:
    """True if the head asks for something that batches do not do."""
    if head.is_plain:
        return False
    is_event = (head.get("content-type") or "").lower().startswith("application/cloudevents")
    return is_event or any(head.get(name.decode()) is not None for name in _OF_ONE_MESSAGE)
