"""A TCP proxy for each broker of a cluster. It forwards everything unless told to do harm.

Clients follow the addresses that brokers advertise, so a broker behind a link must advertise the
link's address and port (`advertised.listeners`); create the link first.
"""

import socket
import struct
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TypeVar

import trio

from hermes_chaos.live.frames import Frames, NotKafka, answer_header, request_header

T = TypeVar("T")

_CHUNK_BYTES = 65_536
_LATE_PIECES_MAX = 1_000
_ANSWERS_GRACE_S = 10.0
_START_TIMEOUT_S = 10.0
_GONE = (trio.BrokenResourceError, trio.ClosedResourceError, OSError, NotKafka)


class Harm(Enum):
    """Kinds of harm to one request."""

    LOSE_ANSWER = "forward it, and when its answer comes break the client's connection instead"
    DROP_ANSWER = "forward it, and keep its answer back; the connection stays open"
    CLOSE_AFTER = "forward it, and break the client's connection at once"
    CLOSE_BEFORE = "break the client's connection, and do not forward it"
    HOLD = "keep it until `release`, then forward it even if the client has gone"


@dataclass
class Rule:
    """Harms the next `times` requests of one API (after `skip`) that contain these bytes."""

    api: int
    harm: Harm
    skip: int = 0
    times: int = 1
    holding: bytes = b""
    struck: int = 0
    """The number of requests harmed so far."""
    has_struck: trio.Event = field(default_factory=trio.Event)
    """Set once a request was harmed."""

    def strikes(self, api: int, frame: bytes) -> bool:
        """True if the rule applies to this request; counts it."""
        if api != self.api or self.struck >= self.times or self.holding not in frame:
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        self.struck += 1
        self.has_struck.set()
        return True


class Lane:
    """One direction of a link. Delays apply piece by piece, in order."""

    def __init__(self) -> None:
        self.delay_s = 0.0
        """Delay of each piece (a frame, or up to 64 KiB)."""
        self.latency_s = 0.0
        """Latency of answers, which does not limit throughput, as of a distant broker. Answers
        only.
        """
        self.bytes_per_s: float | None = None
        self._is_held = False
        self._freed = trio.Event()

    @property
    def is_held(self) -> bool:
        """A black hole: while True nothing is forwarded, afterwards everything is."""
        return self._is_held

    @is_held.setter
    def is_held(self, value: bool) -> None:
        self._is_held = value
        if not value:
            self._freed.set()
            self._freed = trio.Event()

    async def passes(self, size_bytes: int) -> None:
        """Wait for the delay of a piece of this size."""
        if self.delay_s > 0:
            await trio.sleep(self.delay_s)
        if self.bytes_per_s is not None:
            await trio.sleep(size_bytes / self.bytes_per_s)
        while self._is_held:
            await self._freed.wait()

    def heal(self) -> None:
        """Forward everything at once."""
        self.delay_s = self.latency_s = 0.0
        self.bytes_per_s = None
        self.is_held = False


class Link:
    """One listener and the address behind it. `upstream` is (host, port). Port 0 means any free
    port.

    All methods except `run` return at once and take effect at once; call them in the proxy's
    thread.
    """

    def __init__(
        self,
        upstream: tuple[str, int],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        is_kafka: bool = True,
    ) -> None:
        self.upstream = upstream
        self.requests = Lane()
        self.answers = Lane()
        self.rules: list[Rule] = []
        self.held = 0
        """The number of requests that HOLD keeps now."""
        self._is_kafka = is_kafka
        self._host = host
        self._connections: dict[_Connection, None] = {}
        self._reopened = trio.Event()
        self._released = trio.Event()
        self._listener: trio.SocketListener | None = _listen(host, port)
        self.port: int = self._listener.socket.getsockname()[1]

    @property
    def address(self) -> str:
        """host:port of the listener."""
        return f"{self._host}:{self.port}"

    @property
    def connections(self) -> int:
        """The number of connected clients."""
        return len(self._connections)

    def harm(
        self, api: int, harm: Harm, *, skip: int = 0, times: int = 1, holding: bytes = b""
    ) -> Rule:
        """Add a rule. The first rule that applies to a request counts."""
        assert self._is_kafka, "a link that does not read frames knows no requests"
        rule = Rule(api, harm, skip, times, holding)
        self.rules.append(rule)
        return rule

    def release(self) -> None:
        """Forward the requests that HOLD kept."""
        self._released.set()
        self._released = trio.Event()

    def cut(self) -> None:
        """Refuse new connections and reset existing ones."""
        if self._listener is not None:
            self._listener.socket.close()
            self._listener = None
        self.reset_connections()

    def reset_connections(self) -> None:
        """Reset existing connections. New ones are accepted."""
        for connection in list(self._connections):
            connection.reset()

    def heal(self) -> None:
        """End all faults. Held requests are forwarded."""
        self.rules.clear()
        self.release()
        self.requests.heal()
        self.answers.heal()
        if self._listener is None:
            self._listener = _listen(self._host, self.port)
            self._reopened.set()
            self._reopened = trio.Event()

    async def run(self) -> None:
        """Accept and forward until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                while True:
                    while self._listener is None:
                        await self._reopened.wait()
                    try:
                        client = await self._listener.accept()
                    except trio.ClosedResourceError:
                        continue
                    nursery.start_soon(self._serve, client)
        finally:
            self.cut()

    def harm_for(self, frame: bytes, api: int) -> Harm | None:
        """The harm that the rules define for this request, or None."""
        return next((rule.harm for rule in self.rules if rule.strikes(api, frame)), None)

    async def hold(self) -> None:
        """Hold a request until released."""
        self.held += 1
        try:
            await self._released.wait()
        finally:
            self.held -= 1

    async def _serve(self, client: trio.SocketStream) -> None:
        try:
            broker = await trio.open_tcp_stream(*self.upstream)
        except OSError:
            _reset(client)
            return
        connection = _Connection(self, client, broker, self._is_kafka)
        self._connections[connection] = None
        try:
            await connection.run()
        finally:
            del self._connections[connection]
            client.socket.close()
            broker.socket.close()


class _Connection:
    """A client's connection and its connection to the broker."""

    def __init__(
        self, link: Link, client: trio.SocketStream, broker: trio.SocketStream, is_kafka: bool
    ) -> None:
        self._link = link
        self._client = client
        self._broker = broker
        self._is_kafka = is_kafka
        self._is_client_gone = False
        self._harms: dict[int, Harm] = {}
        self._unanswered = 0
        self._answered = trio.Event()

    def reset(self) -> None:
        """Reset both sides."""
        _reset(self._client)
        _reset(self._broker)

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            late, due = trio.open_memory_channel[tuple[float, bytes]](_LATE_PIECES_MAX)
            nursery.start_soon(self._pass_answers, late)
            nursery.start_soon(self._send_late, nursery.cancel_scope, due)
            try:
                await self._pass_requests()
            except _GONE:
                self._is_client_gone = True
            # A broker may drop the unanswered requests of a connection that ends.
            with trio.move_on_after(_ANSWERS_GRACE_S):
                while self._unanswered > 0:
                    await self._answered.wait()
            nursery.cancel_scope.cancel()

    async def _pass_requests(self) -> None:
        frames = Frames()
        while data := await self._client.receive_some(_CHUNK_BYTES):
            for piece in frames.feed(data) if self._is_kafka else [data]:
                await self._link.requests.passes(len(piece))
                if not self._is_kafka:
                    await self._broker.send_all(piece)
                elif not await self._pass_request(piece):
                    return
        if not self._is_kafka:
            await self._broker.send_eof()
            await trio.sleep_forever()

    async def _pass_request(self, frame: bytes) -> bool:
        """Forward a request. False if the client's connection was dropped for it."""
        api, correlation = request_header(frame)
        harm = self._link.harm_for(frame, api)
        if harm is Harm.HOLD:
            await self._link.hold()
        elif harm is Harm.CLOSE_BEFORE:
            self._drop_client()
            return False
        elif harm is not None:
            self._harms[correlation] = harm
        self._unanswered += 1
        await self._broker.send_all(frame)
        if harm is Harm.CLOSE_AFTER:
            self._drop_client()
            return False
        return True

    async def _pass_answers(self, late: trio.MemorySendChannel[tuple[float, bytes]]) -> None:
        frames = Frames()
        try:
            while data := await self._broker.receive_some(_CHUNK_BYTES):
                for piece in frames.feed(data) if self._is_kafka else [data]:
                    await self._link.answers.passes(len(piece))
                    harm = self._count_answer(piece) if self._is_kafka else None
                    if harm is Harm.LOSE_ANSWER:
                        self._drop_client()
                    if harm is None:
                        await late.send((trio.current_time() + self._link.answers.latency_s, piece))
        except _GONE:
            pass
        late.close()

    def _count_answer(self, frame: bytes) -> Harm | None:
        self._unanswered -= 1
        self._answered.set()
        self._answered = trio.Event()
        return self._harms.pop(answer_header(frame), None)

    async def _send_late(
        self, whole: trio.CancelScope, due: trio.MemoryReceiveChannel[tuple[float, bytes]]
    ) -> None:
        """Send delayed pieces in order, each when it is due; then end the connection."""
        async for due_s, piece in due:
            await trio.sleep_until(due_s)
            await self._send_to_client(piece)
        whole.cancel()

    async def _send_to_client(self, piece: bytes) -> None:
        if self._is_client_gone:
            return
        try:
            await self._client.send_all(piece)
        except _GONE:
            self._is_client_gone = True

    def _drop_client(self) -> None:
        self._is_client_gone = True
        _reset(self._client)


@asynccontextmanager
async def open_links(links: Sequence[Link]) -> AsyncIterator[None]:
    """Run the links in the caller's trio for the duration of the block."""
    async with trio.open_nursery() as nursery:
        for link in links:
            nursery.start_soon(link.run)
        yield
        nursery.cancel_scope.cancel()


class Proxy:
    """Links that run in their own thread, for callers without trio, or that block it."""

    def __init__(self, links: Sequence[Link], token: trio.lowlevel.TrioToken) -> None:
        self.links = links
        self._token = token

    def do(self, function: Callable[[], T]) -> T:
        """Call a function in the links' thread, and return its result."""
        done = threading.Event()
        results: list[T] = []

        def call() -> None:
            try:
                results.append(function())
            finally:
                done.set()

        self._token.run_sync_soon(call)
        if not done.wait(_START_TIMEOUT_S) or not results:
            raise RuntimeError(f"{function} failed in the proxy's thread, or its thread has ended")
        return results[0]

    def heal(self) -> None:
        """Let every link forward everything."""
        for link in self.links:
            self.do(link.heal)


@contextmanager
def proxy_in_thread(make_links: Callable[[], Sequence[Link]]) -> Iterator[Proxy]:
    """Run links in their own thread for the duration of the block; `make_links` is called there."""
    started = threading.Event()
    made: list[Proxy] = []
    stopping: list[Callable[[], None]] = []

    async def main() -> None:
        with trio.CancelScope() as scope:
            stopping.append(scope.cancel)
            links = make_links()
            async with open_links(links):
                made.append(Proxy(links, trio.lowlevel.current_trio_token()))
                started.set()
                await trio.sleep_forever()

    thread = threading.Thread(target=partial(trio.run, main), name="proxy", daemon=True)
    thread.start()
    if not started.wait(_START_TIMEOUT_S):
        raise RuntimeError("the proxy did not start; is its port in use?")
    proxy = made[0]
    try:
        yield proxy
    finally:
        proxy.do(stopping[0])
        thread.join(_START_TIMEOUT_S)


def _listen(host: str, port: int) -> trio.SocketListener:
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind((host, port))
    listening.listen(128)
    listening.setblocking(False)
    return trio.SocketListener(trio.socket.from_stdlib_socket(listening))


def _reset(stream: trio.SocketStream) -> None:
    """Close with a TCP reset, so that unread data is lost."""
    if stream.socket.fileno() >= 0:
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        stream.socket.close()
