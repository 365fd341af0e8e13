"""Answers Subscribe: a stream over the calls of a pull subscription."""

import asyncio
import base64
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any

import msgspec
from google.protobuf.timestamp_pb2 import Timestamp

from hermes_actors.errors import Refused, Unavailable
from hermes_actors.model.moments import moment_ms
from hermes_actors.model.pulling import MESSAGES_MAX, Pulled, ReceivedMessage, Settled
from hermes_actors.publisher.edges.grpc.callers import Context, credentials_of
from hermes_actors.publisher.edges.grpc.wire import decoded
from hermes_actors.rpc.v1 import broker_pb2
from hermes_actors.runtime.bridge import BridgeClosed, TrioBridge
from hermes_actors.runtime.clock import Clock
from hermes_actors.security.account import Credentials

OUTSTANDING_MAX = 10_000
_OUTSTANDING = 1_000
_WAIT_MS = 30_000
_ANSWER_BYTES = 1_048_576
_UNSETTLED_IDS_MAX = 2_000
_STOPPING = Unavailable("The node is stopping; subscribe again, at another node")
_pulled = msgspec.json.Decoder(Pulled)
_settled = msgspec.json.Decoder(Settled)

Ask = Callable[[Credentials, str, str, str, Mapping[str, Any]], Awaitable[bytes]]
"""A call of a pull subscription in trio, for a client with these credentials: `pull`, `ack`, `nack`
or `extend`, the topic, the subscription and the body. Returns the answer's JSON. Raises
HermesError.
"""

Asked = tuple[str, list[str], dict[str, Any]]
"""A verb, ack ids, and what else its body has."""


class SubscriberCalls:
    """The calls of SubscriberService."""

    def __init__(self, ask: Ask, bridge: TrioBridge, clock: Clock) -> None:
        self._ask = ask
        self._bridge = bridge
        self._clock = clock
        self._clients: set[_Client] = set()
        self._is_ending = False

    async def subscribe(self, _requests: object, context: Context) -> None:
        """Serve a client of a subscription. Raises HermesError."""
        if self._is_ending:
            raise _STOPPING
        first = await context.read()
        request = broker_pb2.SubscribeRequest()
        if isinstance(first, bytes):
            request = decoded(broker_pb2.SubscribeRequest, first)
        if request.WhichOneof("request") != "start":
            raise Refused(
                "The first request of the stream is no start; name the subscription in it"
            )
        start = request.start
        most = start.max_outstanding_messages or _OUTSTANDING
        if not 1 <= most <= OUTSTANDING_MAX:
            raise Refused(f"max_outstanding_messages: {most} is not in 1 to {OUTSTANDING_MAX:,}")
        credentials = credentials_of(context)

        async def ask(verb: str, body: Mapping[str, Any]) -> bytes:
            call = partial(self._ask, credentials, verb, start.topic, start.subscription)
            return await self._bridge.call(call, body)

        client = _Client(context, ask, most, self._clock)
        self._clients.add(client)
        try:
            await client.run()
        except BridgeClosed as error:
            raise _STOPPING from error
        finally:
            self._clients.discard(client)

    def end_all(self) -> None:
        """End all streams, because the node stops."""
        self._is_ending = True
        for client in self._clients:
            client.end()


class _Client:
    """One stream: it pulls while the client may have more messages, and settles what it sends.

    A message is outstanding until its client has settled it or its deadline has passed.
    """

    def __init__(
        self,
        context: Context,
        ask: Callable[[str, Mapping[str, Any]], Awaitable[bytes]],
        most: int,
        clock: Clock,
    ) -> None:
        self._context = context
        self._ask = ask
        self._most = most
        self._clock = clock
        # By ack id: the deadline, by the wall clock.
        self._outstanding: dict[str, int] = {}
        self._asked: deque[Asked] = deque()
        self._asked_ids = 0
        self._is_read = self._is_ended = False
        self._changed = asyncio.Event()
        self._writing = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        reader, settler, puller = self._tasks = [
            asyncio.create_task(each()) for each in (self._read, self._settle_all, self._pull_all)
        ]
        try:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            if reader.done() and not self._is_ended:
                # The client has closed its side: it gets no more, and what it has sent is settled.
                puller.cancel()
                await asyncio.wait([settler])
        finally:
            for each in self._tasks:
                each.cancel()
            await asyncio.wait(self._tasks)
        for each in self._tasks:
            if not each.cancelled():
                each.result()
        if self._is_ended:
            raise _STOPPING

    def end(self) -> None:
        self._is_ended = True
        for each in self._tasks:
            each.cancel()

    # What the client sends.

    async def _read(self) -> None:
        try:
            while isinstance(data := await self._context.read(), bytes):
                verb, ids, more = _asked_in(decoded(broker_pb2.SubscribeRequest, data))
                self._asked.append((verb, ids, more))
                self._asked_ids += len(ids)
                self._changed.set()
                while self._asked_ids > _UNSETTLED_IDS_MAX:
                    await self._next_change()
        finally:
            self._is_read = True
            self._changed.set()

    async def _settle_all(self) -> None:
        while True:
            while not self._asked:
                if self._is_read:
                    return
                await self._next_change()
            verb, ids, more = self._asked.popleft()
            while self._asked:
                next_verb, next_ids, next_more = self._asked[0]
                if (verb, more) != (next_verb, next_more) or len(ids + next_ids) > MESSAGES_MAX:
                    break
                ids += next_ids
                self._asked.popleft()
            answer = _settled.decode(await self._ask(verb, {"ackIds": ids, **more}))
            self._asked_ids -= len(ids)
            until_ms = self._clock.now_ms() + 1_000 * more.get("ackDeadlineSeconds", 0)
            for each in ids:
                if verb == "extend" and each in self._outstanding:
                    self._outstanding[each] = until_ms
                else:
                    self._outstanding.pop(each, None)
            self._changed.set()
            if answer.refused:
                response = broker_pb2.SubscribeResponse()
                for refused in answer.refused:
                    response.refused.add(
                        ack_id=refused.ack_id, code=refused.code, message=refused.message
                    )
                await self._write(response)

    # What it gets.

    async def _pull_all(self) -> None:
        while True:
            count = min(await self._wait_for_room(), MESSAGES_MAX)
            body = {"maxMessages": count, "waitMs": _WAIT_MS, "base64": True}
            received = _pulled.decode(await self._ask("pull", body)).received_messages
            response, size_bytes = broker_pb2.SubscribeResponse(), 0
            for each in received:
                message = _message_of(each)
                self._outstanding[each.ack_id] = message.ack_deadline.ToMilliseconds()
                response.received_messages.append(message)
                size_bytes += len(message.message.data)
                if size_bytes >= _ANSWER_BYTES:
                    await self._write(response)
                    response, size_bytes = broker_pb2.SubscribeResponse(), 0
            if response.received_messages:
                await self._write(response)

    async def _wait_for_room(self) -> int:
        """Wait until the client may have more messages; returns how many."""
        while len(self._outstanding) >= self._most:
            now_ms = self._clock.now_ms()
            earliest_ms = min(self._outstanding.values())
            if earliest_ms <= now_ms:
                for each in [key for key, end in self._outstanding.items() if end <= now_ms]:
                    del self._outstanding[each]
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout((earliest_ms - now_ms) / 1_000):
                        await self._next_change()
        return self._most - len(self._outstanding)

    async def _next_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _write(self, response: broker_pb2.SubscribeResponse) -> None:
        # gRPC takes one answer at a time.
        async with self._writing:
            # A client that works on one message for long reads no further, and may.
            await self._context.write(response.SerializeToString())


def _asked_in(request: broker_pb2.SubscribeRequest) -> Asked:
    """What the client asks. Raises Refused."""
    kind = request.WhichOneof("request")
    if kind == "acknowledge":
        return "ack", list(request.acknowledge.ack_ids), {}
    if kind == "nack":
        nack = request.nack
        more = {"delayMs": nack.delay_ms} if nack.HasField("delay_ms") else {}
        return "nack", list(nack.ack_ids), more
    if kind == "modify_ack_deadline":
        extend = request.modify_ack_deadline
        more = {"ackDeadlineSeconds": extend.ack_deadline_seconds}
        return "extend", list(extend.ack_ids), more
    raise Refused(
        "The request is empty, or a second start; send acknowledge, nack or modify_ack_deadline"
    )


def _message_of(received: ReceivedMessage) -> broker_pb2.ReceivedMessage:
    pulled = received.message
    message = broker_pb2.Message(
        data=base64.b64decode(pulled.data or ""),
        attributes=pulled.attributes,
        message_id=pulled.message_id,
        publish_time=_stamp(pulled.publish_time) if pulled.publish_time else None,
        ordering_key=pulled.ordering_key,
    )
    return broker_pb2.ReceivedMessage(
        ack_id=received.ack_id,
        message=message,
        delivery_attempt=received.delivery_attempt,
        ack_deadline=_stamp(received.ack_deadline),
    )


@lru_cache(1_024)
def _stamp(text: str) -> Timestamp:
    at_ms = moment_ms(text, 0)
    return Timestamp(seconds=at_ms // 1_000, nanos=at_ms % 1_000 * 1_000_000)
