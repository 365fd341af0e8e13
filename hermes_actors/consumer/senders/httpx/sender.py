"""Pushes over httpcore, httpx' transport: HTTP/2, and whatever goes through a proxy. One trio task
for each push, bounded.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import httpcore
import trio

from hermes_actors.consumer.senders.httpx.net import (
    ERRORS,
    GuardedBackend,
    HttpxNet,
    failure_of,
    said,
    was_unprocessed,
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

PUSHES_MAX = 1_000

LANES_MAX = 1_000
"""With so many lanes the idle ones are closed at once."""

ABANDONED_MAX = 8
"""HTTP/2 streams without an end that a lane may hold before it gets new connections."""

_REPEATS_MAX = 2
# HTTP/2 forbids these in a request.
_NOT_IN_HTTP2 = frozenset((b"keep-alive", b"connection"))
_DEFAULT_PORTS = {"http": 80, "https": 443}
_PIECE_BYTES_MIN = 64
_BEGINS = ".send_request_headers.started"
_PROXY_ASKS_FOR_CREDENTIALS = 407


class Lane:
    """The connections of one subscription to one origin. A retired lane is closed after its last
    push.

    `abandoned` counts streams that were left without an end, by a time-out or a long answer:
    httpcore does not reset them, so they count against the server's limit.
    """

    def __init__(self, net: HttpxNet, origin: Origin, *, http2: bool) -> None:
        self.pool = net.open_pool(origin, http2=http2, retire=self.retire)
        self.pushes = 0
        self.abandoned = 0
        self.is_retired = False
        self.free_since_s = 0.0

    def retire(self) -> None:
        """Take no new pushes."""
        self.is_retired = True

    def abandon(self) -> None:
        """Note a stream without an end."""
        self.abandoned += 1
        self.is_retired |= self.abandoned >= ABANDONED_MAX

    async def close(self) -> None:
        """Close all connections; errors of the transport are ignored."""
        with trio.CancelScope(shield=True), suppress(*ERRORS):
            await self.pool.aclose()


class Lanes:
    """The lanes of a sender."""

    def __init__(self, net: HttpxNet, *, http2: bool) -> None:
        self._net = net
        self._http2 = http2
        # A retired lane that has been replaced closes itself after its last push.
        self._lanes: dict[tuple[str, Origin], Lane] = {}

    async def take(self, route: PushRoute) -> Lane:
        """The lane for one push, to be given back."""
        if len(self._lanes) >= LANES_MAX:
            await self.close_idle(0.0)
        key = (route.subscription, route.origin)
        lane = self._lanes.get(key)
        if lane is None or lane.is_retired:
            lane = self._lanes[key] = Lane(self._net, route.origin, http2=self._http2)
        lane.pushes += 1
        return lane

    async def give_back(self, route: PushRoute, lane: Lane) -> None:
        """Give back the lane of a push that is over."""
        key = (route.subscription, route.origin)
        lane.pushes -= 1
        lane.free_since_s = trio.current_time()
        if lane.is_retired and not lane.pushes:
            if self._lanes.get(key) is lane:
                del self._lanes[key]
            await lane.close()

    async def close_idle(self, idle_s: float) -> None:
        """Close the connections that no push has used for so long."""
        now_s = trio.current_time()
        for key, lane in list(self._lanes.items()):
            is_idle = not lane.pushes and now_s - lane.free_since_s >= idle_s
            # Asked again: others go on while one is being closed.
            if is_idle and self._lanes.get(key) is lane:
                del self._lanes[key]
                await lane.close()

    async def close(self) -> None:
        """Close all connections, after the last push."""
        for lane in self._lanes.values():
            await lane.close()


class _NotBegun(Exception):
    """The push may not begin any more."""


class _LaneRetired(Exception):
    """The lane was retired before the push began."""


class _Unprocessed(Exception):
    """The endpoint has not processed the push, which may be sent again."""

    def __init__(self, outcome: SendOutcome) -> None:
        super().__init__(outcome.reason())
        self.outcome = outcome


class _Progress:
    """How far a push has come. `answer` is there with the answer's head."""

    def __init__(self, push: Push) -> None:
        self._push = push
        self.lane: Lane | None = None
        self.is_begun = False
        self.answer: SendOutcome | None = None

    async def __call__(self, event: str, _info: Any) -> None:
        """Hear from httpcore that a connection is being made, or that the push begins.

        Nothing here may wait: two requests would get the same stream.
        """
        self.is_begun = True
        if event.endswith(_BEGINS):
            # It may have waited for a connection.
            if not may_begin(self._push):
                raise _NotBegun
            if self.lane is not None and self.lane.is_retired:
                raise _LaneRetired


class _Body:
    """A request's body in one piece. A generator would be left in its middle by a connection that
    breaks, and trio complains of those.
    """

    def __init__(self, content: bytes) -> None:
        self._left = [content]

    def __aiter__(self) -> "_Body":
        return self

    async def __anext__(self) -> bytes:
        """Give the piece, once."""
        if not self._left:
            raise StopAsyncIteration
        return self._left.pop()


class HttpxSender(Sender):
    """The sender over httpcore, on trio. Open it with `open_httpx_sender`."""

    def __init__(self, tasks: PushTasks, net: HttpxNet, lanes: Lanes, *, http2: bool) -> None:
        self._tasks = tasks
        self._net = net
        self._lanes = lanes
        self._http2 = http2

    def send(self, push: Push, done: Done) -> None:
        """Start the push; `done` is called exactly once, later."""
        self._tasks.start(push.route.subscription, partial(self._attempt, push), done)

    def forget(self, subscription: str) -> None:
        """End all pushes of the subscription with CLOSED, soon."""
        self._tasks.forget(subscription)

    def probe(self, route: PushRoute, done: Probed) -> bool:
        """Connect, to the proxy where there is one, and close again."""
        self._tasks.start(
            route.subscription,
            partial(self._connect, route.origin),
            lambda outcome: done(outcome.failure),
        )
        return True

    def _refusal(self, origin: Origin) -> str:
        """Why the proxy, which would go there for us, is not asked; "" when it may be."""
        is_proxied = self._net.is_proxied(origin)
        return self._net.guard.refusal_of_host(origin.host) if is_proxied else ""

    async def _connect(self, origin: Origin) -> SendOutcome:
        if refusal := self._refusal(origin):
            return _failure(Failure.FORBIDDEN, refusal)
        net, backend = self._net, GuardedBackend(self._net, origin)
        # A push finds out what lies behind a proxy.
        is_tls = origin.scheme == "https" and not net.is_proxied(origin)
        with trio.move_on_after(min(net.connect_timeout_s, PROBE_TIMEOUT_S)):
            try:
                stream = await backend.connect_tcp(origin.host, origin.port)
                try:
                    if is_tls:
                        stream = await stream.start_tls(net.tls, origin.host)
                finally:
                    await stream.aclose()
            except ERRORS as error:
                is_forbidden = failure_of(error) is Failure.FORBIDDEN
                return _failure(Failure.FORBIDDEN if is_forbidden else Failure.CONNECT, said(error))
            return SendOutcome(200)
        return _failure(Failure.TIMEOUT, "no connection in time")

    async def _attempt(self, push: Push) -> SendOutcome:
        if refusal := self._refusal(push.route.origin):
            return _failure(Failure.FORBIDDEN, refusal)
        timeout_s = push.request_timeout_ms / 1_000
        progress = _Progress(push)
        outcome: SendOutcome | None = None
        with trio.move_on_after(timeout_s):
            repeats = 0
            while outcome is None:
                try:
                    outcome = await self._exchange(push, progress)
                except _LaneRetired:
                    continue
                except _Unprocessed as error:
                    repeats += 1
                    if repeats > _REPEATS_MAX:
                        outcome = error.outcome
        # As in the plain sender the head decides, whatever becomes of the body.
        outcome = progress.answer or outcome
        if outcome is None and not progress.is_begun:
            return _failure(Failure.OVERLOADED, f"no connection was free within {timeout_s:g} s")
        if outcome is None:
            return _failure(Failure.TIMEOUT, f"no answer within {timeout_s:g} s")
        if outcome.status == _PROXY_ASKS_FOR_CREDENTIALS and self._net.is_proxied(
            push.route.origin
        ):
            # Not the endpoint's answer: it must not give the message up.
            return _failure(Failure.CONNECT, "the proxy asks for credentials (HTTP 407)")
        return outcome

    async def _exchange(self, push: Push, progress: _Progress) -> SendOutcome:
        """Send the push once. Raises _LaneRetired and _Unprocessed."""
        lane = progress.lane = await self._lanes.take(push.route)
        is_ended = False
        try:
            response = await lane.pool.handle_async_request(self._request(push, progress))
            progress.answer = _outcome_of(response, push.witness)
            is_ended = await self._read_body(response, push.witness)
            return progress.answer
        except _NotBegun:
            is_ended = True
            return NOT_BEGUN
        except _LaneRetired:
            is_ended = True
            raise
        except ERRORS as error:
            failure = failure_of(error)
            is_ended = failure is not Failure.IDLE
            if failure in (Failure.MALFORMED, Failure.OVERLOADED):
                lane.retire()
            silence = f"silent for {push.socket_timeout_ms / 1_000:g} s"
            detail = silence if failure is Failure.IDLE else said(error)
            outcome = _failure(failure, detail)
            if was_unprocessed(error):
                raise _Unprocessed(outcome) from error
            return outcome
        finally:
            if self._http2 and not is_ended:
                lane.abandon()
            await self._lanes.give_back(push.route, lane)

    def _request(self, push: Push, progress: _Progress) -> httpcore.Request:
        origin = push.route.origin
        host = origin.host.encode("ascii")
        authority = b"[%b]" % host if b":" in host else host
        if origin.port != _DEFAULT_PORTS[origin.scheme]:
            authority += b":%d" % origin.port
        lines = parse_lines(push.lines)
        if self._http2:
            lines = [each for each in lines if each[0].lower() not in _NOT_IN_HTTP2]
        silence_s = push.socket_timeout_ms / 1_000 or None
        return httpcore.Request(
            b"POST",
            httpcore.URL(
                scheme=origin.scheme.encode("ascii"),
                host=host,
                port=origin.port,
                target=push.route.target.encode("ascii"),
            ),
            headers=[
                (b"Host", authority),
                *lines,
                (b"Content-Length", b"%d" % len(push.body)),
            ],
            content=_Body(push.body),
            extensions={
                "timeout": {
                    "connect": self._net.connect_timeout_s,
                    "read": silence_s,
                    "write": silence_s,
                },
                "trace": progress,
            },
        )

    async def _read_body(self, response: httpcore.Response, witness: Witness | None) -> bool:
        """Read no more of the body than its bound; False when there is more."""
        seen = 0
        try:
            # Cancelled rather than left: otherwise httpcore's nested generators would not close.
            with trio.CancelScope() as scope:
                async for piece in response.aiter_stream():
                    # Thousands of tiny chunks cost more than their bytes.
                    seen += max(len(piece), _PIECE_BYTES_MIN)
                    if witness is not None:
                        witness.hear(piece)
                    if seen > self._net.response_bytes_max:
                        scope.cancel()
                    # httpcore gives what has come already without a checkpoint.
                    await trio.lowlevel.cancel_shielded_checkpoint()
        finally:
            with trio.CancelScope(shield=True):
                await response.aclose()
        if witness is not None:
            witness.is_cut |= scope.cancelled_caught
        return not scope.cancelled_caught


def _outcome_of(response: httpcore.Response, witness: Witness | None) -> SendOutcome:
    if witness is not None:
        witness.begin()
        witness.headers += response.headers
    for name, value in response.headers:
        if name.lower() == b"retry-after":
            return SendOutcome(response.status, value.decode("latin-1"))
    return SendOutcome(response.status)


def _failure(failure: Failure, detail: str) -> SendOutcome:
    return SendOutcome(0, "", failure, detail)


@asynccontextmanager
async def open_httpx_sender(
    net: HttpxNet, *, http2: bool = True, pushes_max: int = PUSHES_MAX
) -> AsyncIterator[HttpxSender]:
    """A sender for the length of the block; pushes under way at its end end with CLOSED."""
    lanes = Lanes(net, http2=http2)
    try:
        async with trio.open_nursery() as nursery:
            tasks = PushTasks(nursery, pushes_max)
            nursery.start_soon(_keep_tidy, lanes, net.idle_s)
            try:
                yield HttpxSender(tasks, net, lanes, http2=http2)
            finally:
                tasks.close()
                nursery.cancel_scope.cancel()
    finally:
        await lanes.close()


async def _keep_tidy(lanes: Lanes, interval_s: float) -> None:
    while True:
        await trio.sleep(interval_s / 2)
        await lanes.close_idle(interval_s)
