"""Pushes over httpx' transport (httpcore): HTTP/2, with ALPN for https and with prior knowledge for
http, and whatever goes through a proxy.

A trio task for each push, bounded; for what the plain sender does not speak.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import httpcore
import trio

from hermes_actors.consumer.senders.connecting import ForbiddenAddress
from hermes_actors.consumer.senders.httpx.net import (
    PIECE_BYTES_MIN,
    TRANSPORT_ERRORS,
    CrowdedHost,
    HttpxNet,
    PushBody,
    said,
)
from hermes_actors.consumer.senders.push_tasks import PushTasks
from hermes_actors.consumer.senders.sender import (
    NOT_BEGUN,
    PROBE_TIMEOUT_S,
    Done,
    Failure,
    Origin,
    Probed,
    Push,
    PushRoute,
    Sender,
    SendOutcome,
    Witness,
    may_begin,
    parse_lines,
)

POOLS_MAX = 1_000
"""Pools that are kept, unless more are in use."""

ABANDONED_MAX = 8
"""Streams without an end that a pool may hold before it is taken out of use."""


class Pool:
    """The connections of one subscription to one origin. `abandoned` counts streams that were left
    without their end: the transport does not reset them, so they go on counting against the
    server's limit. `is_spoilt`: nothing good comes of these connections any more.
    """

    def __init__(self, connections: httpcore.AsyncConnectionPool) -> None:
        self.connections = connections
        self.pushes = 0
        self.abandoned = 0
        self.is_spoilt = False
        self.free_since_s = 0.0


class Pools:
    """All pools of a sender; `open_pool` makes one. Idle ones are closed by `close_idle`."""

    def __init__(
        self, open_pool: Callable[[Origin], httpcore.AsyncConnectionPool], idle_s: float
    ) -> None:
        self._open_pool = open_pool
        self._idle_s = idle_s
        self._pools: dict[tuple[str, Origin], Pool] = {}
        # Out of use, but not out of pushes. A dictionary for its order.
        self._retired: dict[Pool, None] = {}

    async def take(self, route: PushRoute) -> Pool:
        """The pool for one push, to be given back."""
        key = (route.subscription, route.origin)
        if key not in self._pools:
            await self._make_room()
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = Pool(self._open_pool(route.origin))
        pool.pushes += 1
        return pool

    async def give_back(self, route: PushRoute, pool: Pool) -> None:
        """Give back the pool of a push that is over. One that has gone bad takes no more, and is
        closed after its last push.
        """
        pool.pushes -= 1
        pool.free_since_s = trio.current_time()
        key = (route.subscription, route.origin)
        is_bad = pool.is_spoilt or pool.abandoned >= ABANDONED_MAX
        if is_bad and self._pools.get(key) is pool:
            del self._pools[key]
            self._retired[pool] = None
        if not pool.pushes and pool in self._retired:
            del self._retired[pool]
            with trio.CancelScope(shield=True):
                await _close(pool.connections)

    async def close_idle(self) -> None:
        """Close the connections that nothing has used for as long as they are kept."""
        now_s = trio.current_time()
        for key, pool in list(self._pools.items()):
            is_idle = not pool.pushes and now_s - pool.free_since_s >= self._idle_s
            # Asked again: others go on while one is being closed.
            if is_idle and self._pools.get(key) is pool:
                del self._pools[key]
                await _close(pool.connections)

    async def close_idle_of(self, origin: Origin) -> bool:
        """Close the connections to this host and port that have been idle for longest; False when
        there are none.
        """
        place = (origin.host, origin.port)
        free = [
            key
            for key, pool in self._pools.items()
            if not pool.pushes and (key[1].host, key[1].port) == place
        ]
        if not free:
            return False
        longest = min(free, key=lambda key: self._pools[key].free_since_s)
        await _close(self._pools.pop(longest).connections)
        return True

    async def close(self) -> None:
        """Close all connections, whoever uses them."""
        pools, self._pools = [*self._pools.values(), *self._retired], {}
        for pool in pools:
            await _close(pool.connections)

    async def _make_room(self) -> None:
        while len(self._pools) >= POOLS_MAX:
            free = [key for key, pool in self._pools.items() if not pool.pushes]
            if not free:
                return
            longest = min(free, key=lambda key: self._pools[key].free_since_s)
            await _close(self._pools.pop(longest).connections)


async def _close(connections: httpcore.AsyncConnectionPool) -> None:
    """Close connections that nobody uses any more; errors of the transport are ignored."""
    with suppress(*TRANSPORT_ERRORS):
        await connections.aclose()


PUSHES_MAX = 1_000

# What HTTP/2 forbids in a request, or knows by another name.
_NOT_IN_HTTP2 = frozenset((b"keep-alive", b"connection"))
_DEFAULT_PORTS = {"http": 80, "https": 443}
_BEGINS = ".send_request_headers.started"
_PROXY_ASKS_FOR_CREDENTIALS = 407


class _NotBegun(Exception):
    """The push may not begin any more."""


_EXPECTED: tuple[type[Exception], ...] = (*TRANSPORT_ERRORS, _NotBegun)


class _PushProgress:
    """Hears from the transport how far a request has come; `answer` is there with its head."""

    is_begun = False
    answer: SendOutcome | None = None

    def __init__(self, push: Push) -> None:
        self._push = push

    async def __call__(self, event: str, _info: Any) -> None:
        """Hear that a connection is being made for the push, or that it is sent. Raises
        _NotBegun.
        """
        self.is_begun = True
        # The last word before its head is written: it may have waited for a connection.
        if event.endswith(_BEGINS) and not may_begin(self._push):
            raise _NotBegun


class HttpxSender(Sender):
    """Pushes over httpcore's pools, on trio. Open it with `open_httpx_sender`."""

    def __init__(self, tasks: PushTasks, net: HttpxNet, *, http2: bool) -> None:
        self._tasks = tasks
        self._net = net
        self._http2 = http2
        self.pools = Pools(partial(net.open_pool, http2=http2), net.idle_s)

    def send(self, push: Push, done: Done) -> None:
        """Start the push; `done` is called exactly once, later."""
        self._tasks.start(
            partial(self._attempt, push),
            done,
            closed=SendOutcome(0, "", Failure.CLOSED),
            overloaded=SendOutcome(0, "", Failure.OVERLOADED, "too many pushes wait"),
            broken=lambda error: _failure(Failure.MALFORMED, said(error)),
            subscription=push.route.subscription,
        )

    def forget(self, subscription: str) -> None:
        """End all pushes of the subscription with CLOSED, soon."""
        self._tasks.forget(subscription)

    def probe(self, route: PushRoute, done: Probed) -> bool:
        """Connect, to a proxy where there is one, and close again; `done` is called once, later."""
        closed: Failure | None = Failure.CLOSED
        overloaded: Failure | None = Failure.OVERLOADED
        self._tasks.start(
            partial(self._connect, route.origin),
            done,
            closed=closed,
            overloaded=overloaded,
            broken=lambda _error: Failure.CONNECT,
            subscription=route.subscription,
        )
        return True

    async def _connect(self, origin: Origin) -> Failure | None:
        net, proxy = self._net, self._net.proxy
        is_proxied = net.is_proxied(origin)
        to = proxy.origin if proxy is not None and is_proxied else origin
        if is_proxied and net.guard.refusal_of_host(origin.host):
            return Failure.FORBIDDEN
        failure: Failure | None = Failure.TIMEOUT
        with trio.move_on_after(min(net.connect_timeout_s, PROBE_TIMEOUT_S)):
            try:
                stream = await net.backend(origin).connect_tcp(to.host, to.port)
                try:
                    # What lies behind a proxy is found out by a push.
                    if to.scheme == "https" and not is_proxied:
                        stream = await stream.start_tls(net.tls, to.host)
                    failure = None
                finally:
                    await stream.aclose()
            except ForbiddenAddress:
                failure = Failure.FORBIDDEN
            except TRANSPORT_ERRORS:
                failure = Failure.CONNECT if failure is not None else None
        return failure

    async def _attempt(self, push: Push) -> SendOutcome:
        timeout_s = push.request_timeout_ms / 1_000
        origin = push.route.origin
        is_proxied = self._net.is_proxied(origin)
        if is_proxied and (refusal := self._net.guard.refusal_of_host(origin.host)):
            # The proxy would look it up and go there for us.
            return _failure(Failure.FORBIDDEN, refusal)
        outcome: SendOutcome | None = None
        is_expected = False
        progress = _PushProgress(push)
        pool = await self.pools.take(push.route)
        try:
            with trio.move_on_after(timeout_s):
                try:
                    outcome = await self._exchange(push, pool, progress)
                except CrowdedHost:
                    # Another subscription may have connections there that it has no use for.
                    if not await self.pools.close_idle_of(origin):
                        raise
                    outcome = await self._exchange(push, pool, progress)
            is_expected = True
        except _EXPECTED as error:
            outcome = self._failed(push, pool, error)
            is_expected = True
        finally:
            failure = Failure.TIMEOUT if outcome is None else outcome.failure
            pool.is_spoilt |= not is_expected or failure is Failure.MALFORMED
            if self._http2 and failure in (Failure.TIMEOUT, Failure.IDLE):
                pool.abandoned += 1
            await self.pools.give_back(push.route, pool)
        # The head decides, as in the plain sender, whatever becomes of the body.
        outcome = progress.answer or outcome
        if outcome is None and not progress.is_begun:
            return _failure(Failure.OVERLOADED, f"no connection was free within {timeout_s:g} s")
        if outcome is None:
            return _failure(Failure.TIMEOUT, f"no answer within {timeout_s:g} s")
        if is_proxied and outcome.status == _PROXY_ASKS_FOR_CREDENTIALS:
            # No word of the endpoint's, which would give the message up.
            return _failure(Failure.CONNECT, "the proxy asks for credentials (HTTP 407)")
        return outcome

    def _failed(self, push: Push, pool: Pool, error: Exception) -> SendOutcome:
        """Return the outcome that an exception of the transport means."""
        text, origin = said(error), push.route.origin
        match error:
            case _NotBegun():
                return NOT_BEGUN
            case ForbiddenAddress():
                return _failure(Failure.FORBIDDEN, text)
            case CrowdedHost():
                return _failure(Failure.OVERLOADED, text)
            case httpcore.LocalProtocolError() if _is_full(error):
                pool.is_spoilt = True
                return _failure(Failure.OVERLOADED, "all streams of the connection are taken")
            case httpcore.ConnectTimeout():
                limit_s = self._net.connect_timeout_s
                return _failure(Failure.CONNECT, f"{origin}: no connection within {limit_s:g} s")
            case httpcore.TimeoutException():
                return _failure(Failure.IDLE, f"silent for {push.socket_timeout_ms / 1_000:g} s")
            case httpcore.ProxyError():
                return _failure(Failure.CONNECT, f"the proxy refused: {text}")
            case httpcore.ConnectError() | httpcore.UnsupportedProtocol():
                return _failure(Failure.CONNECT, f"{origin}: {text}")
            case httpcore.RemoteProtocolError() if not _is_reset(error):
                return _failure(Failure.MALFORMED, text)
            case httpcore.RemoteProtocolError() | httpcore.NetworkError() | OSError():
                return _failure(Failure.RESET, text)
            case trio.BrokenResourceError() | trio.ClosedResourceError():
                return _failure(Failure.RESET, text)
            case _:
                return _failure(Failure.MALFORMED, text)

    async def _exchange(self, push: Push, pool: Pool, progress: _PushProgress) -> SendOutcome:
        request = self._request(push, progress)
        response = await pool.connections.handle_async_request(request)
        retry_after = next(
            (value for name, value in response.headers if name.lower() == b"retry-after"), b""
        )
        progress.answer = SendOutcome(response.status, retry_after.decode("latin-1"))
        if push.witness is not None:
            push.witness.begin()
            push.witness.headers += response.headers
        try:
            if not await self._drain(response, push.witness):
                pool.abandoned += 1
                if push.witness is not None:
                    push.witness.is_cut = True
        finally:
            with trio.CancelScope(shield=True):
                await response.aclose()
        return progress.answer

    def _request(self, push: Push, progress: _PushProgress) -> httpcore.Request:
        origin = push.route.origin
        scheme, host = origin.scheme.encode("ascii"), origin.host.encode("ascii")
        authority = b"[%b]" % host if b":" in host else host
        if origin.port != _DEFAULT_PORTS[origin.scheme]:
            authority += b":%d" % origin.port
        own = parse_lines(push.lines)
        if self._http2:
            own = [each for each in own if each[0].lower() not in _NOT_IN_HTTP2]
        silence_s = push.socket_timeout_ms / 1_000 or None
        return httpcore.Request(
            b"POST",
            httpcore.URL(
                scheme=scheme, host=host, port=origin.port, target=push.route.target.encode("ascii")
            ),
            headers=[
                (b"Host", authority),
                *own,
                (b"Content-Length", b"%d" % len(push.body)),
            ],
            content=PushBody(push.body),
            extensions={"timeout": self._net.time_outs(silence_s), "trace": progress},
        )

    async def _drain(self, response: httpcore.Response, witness: Witness | None) -> bool:
        """Read the body, and no more than its bound; False when there is more."""
        seen = 0
        # Cancelled rather than left: nested generators only close by what is raised inside.
        with trio.CancelScope() as scope:
            async for piece in response.aiter_stream():
                seen += max(len(piece), PIECE_BYTES_MIN)
                if witness is not None:
                    witness.hear(piece)
                if seen > self._net.response_bytes_max:
                    scope.cancel()
                # What has come already is parsed without a wait.
                await trio.lowlevel.cancel_shielded_checkpoint()
        return not scope.cancelled_caught


def _failure(failure: Failure, detail: str) -> SendOutcome:
    return SendOutcome(0, "", failure, detail)


def _is_full(error: Exception) -> bool:
    """True when streams that were left without their end take up what the server allows."""
    return "TooManyStreamsError" in {type(each).__name__ for each in error.args}


def _is_reset(error: Exception) -> bool:
    """True for the end of a connection or of a stream, as against an answer without sense."""
    # In HTTP/2 the frame that said so, which has the peer's reason.
    return "disconnect" in str(error) or any(hasattr(each, "error_code") for each in error.args)


@asynccontextmanager
async def open_httpx_sender(
    net: HttpxNet,
    *,
    http2: bool = True,
    pushes_max: int = PUSHES_MAX,
    on_fault: Callable[[Exception], object] = lambda _error: None,
) -> AsyncIterator[HttpxSender]:
    """A sender for the length of the block; pushes under way at its end end with CLOSED.

    `on_fault` is told of each exception of a push that nobody expects of the transport.
    """
    opened: list[HttpxSender] = []
    try:
        async with trio.open_nursery() as nursery:
            tasks = PushTasks(nursery, pushes_max, on_fault)
            sender = HttpxSender(tasks, net, http2=http2)
            opened.append(sender)
            nursery.start_soon(_keep_tidy, sender, net.idle_s)
            try:
                yield sender
            finally:
                tasks.close()
                nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True):
            for each in opened:
                await each.pools.close()


async def _keep_tidy(sender: HttpxSender, interval_s: float) -> None:
    while True:
        await trio.sleep(interval_s / 2)
        await sender.pools.close_idle()
