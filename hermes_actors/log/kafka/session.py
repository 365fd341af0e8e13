"""A connection that processes each answer as soon as it arrives, and closes before its log-in
expires.

aiokafka opens it and logs in. Then its frames are parsed here, without aiokafka's stream and reader
task, which cost an iteration of the loop each.

With connections.max.reauth.ms a broker closes a connection with an expired log-in at its next
request, without an answer. The outcome of an append with acks "1" would be unknown for no reason.
"""

import asyncio
import math
import struct
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import errors
from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.protocol.admin import SaslAuthenticateRequest

_USED_FOR = 0.8
"""Fraction of the log-in's lifetime after which requests use another connection."""
_HEADER = struct.Struct(">hhih")
_SIZE_BYTES = 4


class Owed:
    """The pending answer to one request: `told` is called once, with the body of the answer or an
    error. Takes the place of a future in aiokafka's list of requests.
    """

    __slots__ = ("_told", "is_told", "timer")

    def __init__(self, told: Callable[[bytes | Exception], None]) -> None:
        self._told = told
        self.is_told = False
        self.timer: asyncio.TimerHandle | None = None

    def done(self) -> bool:
        """True if the answer or an error has been passed on."""
        return self.is_told

    def set_result(self, answer: bytes) -> None:
        """Pass on the answer."""
        self._tell(answer)

    def set_exception(self, error: Exception) -> None:
        """Pass on the error; there will be no answer."""
        self._tell(error)

    def _tell(self, answer: bytes | Exception) -> None:
        self.is_told = True
        if self.timer is not None:
            self.timer.cancel()
        self._told(answer)


class Session(AIOKafkaConnection):  # type: ignore[misc]
    """An AIOKafkaConnection that reports itself as not connected when its log-in expires soon.

    Open requests can still be answered until the log-in expires; then the connection closes.
    """

    _used_until_s = float("inf")
    _end: asyncio.TimerHandle | None = None

    async def connect(self) -> Any:
        """As AIOKafkaConnection.connect."""
        streams = await super().connect()
        transport = self._writer.transport
        # A connection that is already closing is left to aiokafka.
        if not transport.is_closing():
            self._read_task.cancel()
            transport.set_protocol(Frames(self))
        return streams

    def version(self, api_key: int, lowest: int, highest: int) -> int:
        """Return the highest version of a request that both sides support. Raises KafkaError if
        there is none.
        """
        theirs_lowest, theirs_highest = self._versions.get(api_key, (0, -1))
        found: int = min(highest, theirs_highest)
        if found < max(lowest, theirs_lowest):
            raise errors.UnsupportedVersionError(f"request {api_key}: no version in common")
        return found

    def ask(
        self,
        api_key: int,
        version: int,
        body: bytes,
        told: Callable[[bytes | Exception], None],
        *,
        timeout_s: float = math.inf,
    ) -> None:
        """Send an encoded request; `told` is called once with its answer or an error. After
        `timeout_s` that is TimeoutError, and the connection closes. Raises KafkaError if the
        connection has ended.
        """
        if self._writer is None:
            raise errors.KafkaConnectionError("the connection has ended")
        correlation_id = self._next_correlation_id()
        client = self._client_id.encode()
        header = _HEADER.pack(api_key, version, correlation_id, len(client)) + client
        size = len(header) + len(body)
        self._writer.write(b"".join((size.to_bytes(4, "big"), header, body)))
        owed = Owed(told)
        if timeout_s < math.inf:
            owed.timer = self._loop.call_later(timeout_s, self._give_up, owed, timeout_s)
        self._requests.append((correlation_id, None, owed))

    def _handle_frame(self, frame: bytes) -> None:
        correlation_id, _, owed = self._requests[0]
        if not isinstance(owed, Owed):
            super()._handle_frame(frame)
            return
        if int.from_bytes(frame[:4], "big") != correlation_id:
            # It is unknown which request this answers, so all open requests fail.
            self.close(reason=CloseReason.OUT_OF_SYNC)
            return
        self._requests.popleft()
        self._last_action = self._loop.time()
        owed.set_result(frame[4:])

    def _give_up(self, owed: Owed, timeout_s: float) -> None:
        owed.set_exception(TimeoutError(f"no answer within {timeout_s:g} s"))
        self.close(reason=CloseReason.CONNECTION_TIMEOUT)

    def connected(self) -> bool:
        """True if it can be used for another request."""
        if self._used_until_s < self._loop.time():
            return False
        return bool(super().connected())

    def send(self, request: Any, expect_response: bool = True) -> Awaitable[Any]:
        """As AIOKafkaConnection.send."""
        answer: Awaitable[Any] = super().send(request, expect_response)
        return self._logged_in(answer) if isinstance(request, SaslAuthenticateRequest) else answer

    def close(self, reason: Any = None, exc: BaseException | None = None) -> Any:
        """As AIOKafkaConnection.close."""
        if self._end is not None:
            self._end.cancel()
            self._end = None
        return super().close(reason, exc)

    async def _logged_in(self, answer: Awaitable[Any]) -> Any:
        response = await answer
        # Absent in the first version of the answer; 0 if the log-in does not expire.
        life_s = getattr(response, "session_lifetime_ms", 0) / 1_000
        if life_s > 0:
            loop = asyncio.get_running_loop()
            self._used_until_s = loop.time() + life_s * _USED_FOR
            if self._end is not None:
                self._end.cancel()
            self._end = loop.call_later(life_s, self.close, CloseReason.IDLE_DROP)
        return response


class Frames(asyncio.Protocol):
    """Splits the received bytes into frames, and passes them to the session at once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._pieces: list[bytes] = []
        self._size = 0
        self._wanted = _SIZE_BYTES

    def data_received(self, data: bytes) -> None:
        """Process complete frames, and keep an incomplete one."""
        self._size += len(data)
        self._pieces.append(data)
        if self._size < self._wanted:
            return
        if len(self._pieces) > 1:
            data = b"".join(self._pieces)
        at, self._wanted = 0, _SIZE_BYTES
        while self._size - at >= _SIZE_BYTES:
            begins = at + _SIZE_BYTES
            ends = begins + int.from_bytes(data[at:begins], "big")
            if ends > self._size:
                self._wanted = ends - at
                break
            if self._session._writer is None:
                return
            self._session._handle_frame(data[begins:ends])
            at = ends
        self._pieces = [data[at:]] if at < self._size else []
        self._size -= at

    def eof_received(self) -> None:
        """Close the session: the broker has closed the connection."""
        self._session.close(reason=CloseReason.CONNECTION_BROKEN)

    def connection_lost(self, error: Exception | None) -> None:
        """Close the session: the connection has ended."""
        self._session.close(reason=CloseReason.CONNECTION_BROKEN, exc=error)
        self._session._protocol.connection_lost(error)
