"""Answers Publish and PublishStream.

A stream's memory is bounded: its frames count from when they are read until the client has taken
their outcomes, and above a bound nothing more is read.
"""

import asyncio

from hermes_actors.errors import HermesError, Refused, Unavailable
from hermes_actors.publisher.edges.grpc.callers import Context, certificate_of, headers_of, written
from hermes_actors.publisher.edges.grpc.codes import CallEnded, ended_by
from hermes_actors.publisher.edges.grpc.frames import Frame, Publisher
from hermes_actors.publisher.edges.grpc.wire import MESSAGES_MAX, decoded
from hermes_actors.publisher.frontend import Frontend
from hermes_actors.rpc.v1 import broker_pb2

FRAMES_MAX = 1_000
STREAM_MESSAGES_MAX = 20_000
STREAM_BYTES_MAX = 4_194_304
"""Above one of these a stream is not read on; the frame that exceeds it is in work already."""
_ANSWER_BYTES = 1_048_576
_STOPPING = Unavailable(
    "The node is stopping; send the frames without outcomes again, to another node"
)


class PublisherCalls:
    """The calls of PublisherService. They get and return encoded messages."""

    def __init__(self, frontend: Frontend) -> None:
        self._frontend = frontend
        self._streams: set[_Stream] = set()
        frontend.drain.on_closed.append(self._end_all)

    async def publish(self, data: bytes, context: Context) -> bytes:
        """The answer to a PublishRequest. Raises CallEnded."""
        self._require_open()
        request = _checked(decoded(broker_pb2.PublishStreamRequest, data))
        ended: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()

        def end(frame: Frame) -> None:
            if not ended.done():
                ended.set_result(frame)

        frame = Frame(request, len(data), end)
        await self._publisher(context, is_patient=False).hand_over(request, frame)
        answer = (await ended).outcomes()
        outcomes = broker_pb2.PublishResponse.FromString(answer).outcomes
        if len({each.http_status for each in outcomes}) == 1 and outcomes[0].code:
            raise CallEnded(outcomes[0])
        return answer

    async def publish_stream(self, _requests: object, context: Context) -> None:
        """Serve a stream of frames. Raises CallEnded."""
        self._require_open()
        stream = _Stream(self._publisher(context, is_patient=True), context)
        self._streams.add(stream)
        try:
            await stream.run()
        finally:
            self._streams.discard(stream)

    def _publisher(self, context: Context, *, is_patient: bool) -> Publisher:
        headers, certificate = headers_of(context), certificate_of(context)
        return Publisher(self._frontend, headers, certificate, is_patient=is_patient)

    def _require_open(self) -> None:
        if self._frontend.drain.is_refusing:
            raise ended_by(_STOPPING)

    def _end_all(self) -> None:
        for stream in self._streams:
            stream.end(_STOPPING)


class _Stream:
    def __init__(self, publisher: Publisher, context: Context) -> None:
        self._publisher = publisher
        self._context = context
        # Read, but their outcomes are not written yet.
        self._frames = self._messages = self._bytes = 0
        self._ready: list[Frame] = []
        self._is_read = False
        self._error: HermesError | None = None
        self._changed, self._has_room = asyncio.Event(), asyncio.Event()
        self._reader: asyncio.Task[None] | None = None

    async def run(self) -> None:
        self._reader = asyncio.create_task(self._read())
        try:
            await self._write_all()
        finally:
            self._reader.cancel()
            await asyncio.wait([self._reader])
        if not self._reader.cancelled():
            self._reader.result()
        if self._error is not None:
            raise ended_by(self._error)

    def end(self, error: HermesError) -> None:
        """Read no further. What was read is answered, then the stream ends with this error."""
        self._error = error
        if self._reader is not None:
            self._reader.cancel()

    async def _read(self) -> None:
        try:
            while isinstance(data := await self._context.read(), bytes):
                request = _checked(decoded(broker_pb2.PublishStreamRequest, data))
                frame = Frame(request, len(data), self._ended)
                self._frames += 1
                self._messages += frame.count
                self._bytes += frame.size_bytes
                await self._publisher.hand_over(request, frame)
                while self._is_full:
                    self._has_room.clear()
                    await self._has_room.wait()
        except HermesError as error:
            self._error = error
        finally:
            self._is_read = True
            self._changed.set()

    @property
    def _is_full(self) -> bool:
        return (
            self._frames >= FRAMES_MAX
            or self._messages >= STREAM_MESSAGES_MAX
            or self._bytes >= STREAM_BYTES_MAX
        )

    def _ended(self, frame: Frame) -> None:
        self._ready.append(frame)
        self._changed.set()

    async def _write_all(self) -> None:
        while not (self._is_read and not self._frames):
            await self._changed.wait()
            self._changed.clear()
            while self._ready:
                await self._write_ready()

    async def _write_ready(self) -> None:
        """Write the outcomes of frames that have theirs, as many as fit into one answer."""
        answer, size_bytes = broker_pb2.PublishStreamResponse(), 0
        ready, self._ready = self._ready, []
        taken = 0
        for frame in ready:
            encoded = frame.outcomes()
            size_bytes += len(encoded)
            published = answer.frames.add()
            published.MergeFromString(encoded)
            published.sequence = frame.sequence
            taken += 1
            if size_bytes >= _ANSWER_BYTES:
                break
        self._ready = ready[taken:] + self._ready
        await written(self._context, answer)
        self._frames -= taken
        for frame in ready[:taken]:
            self._messages -= frame.count
            self._bytes -= frame.size_bytes
        self._has_room.set()


def _checked(request: broker_pb2.PublishStreamRequest) -> broker_pb2.PublishStreamRequest:
    count = len(request.messages)
    if not 1 <= count <= MESSAGES_MAX:
        raise Refused(f"messages has {count} elements; a request has 1 to {MESSAGES_MAX:,}")
    return request
