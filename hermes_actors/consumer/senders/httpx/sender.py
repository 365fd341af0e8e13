"""Pushes over httpcore, httpx' transport: HTTP/2 and everything that goes through a proxy. One trio
task per push, bounded.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import httpcore
import trio

from hermes_actors.consumer.senders.httpx.net import (
    ERRORS,
    HttpxNet,
    failure_of,
    said,
    was_unprocessed,
)
from hermes_actors.consumer.senders.push_tasks import PushTasks
from hermes_actors.consumer.senders.sender import (
    NOT_BEGUN,
    Done,
    Failure,
    Origin,
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
"""When so many lanes exist, idle ones are closed at once."""

# A connection that takes few requests refuses the later ones of a burst, one time after the other.
_REFUSALS_MAX = 10
# HTTP/2 forbids these in a request.
_NOT_IN_HTTP2 = frozenset((b"keep-alive", b"connection"))
_DEFAULT_PORTS = {"http": 80, "https": 443}
_PIECE_BYTES_MIN = 64
_BEGINS = ".send_request_headers.started"
_PROXY_ASKS_FOR_CREDENTIALS = 407


class _Lane:
    """The connections of one subscription to one origin. A retired lane accepts no new pushes, and
    closes after its last one.
    """

    def __init__(self, net: HttpxNet, origin: Origin, *, http2: bool) -> None:
        self.pool = net.open_pool(origin, http2=http2, retire=self.retire)
        self.pushes = 0
        self.is_retired = False
        self.free_since_s = 0.0

    def retire(self) -> None:
        self.is_retired = True

    async def close(self) -> None:
        with trio.CancelScope(shield=True), suppress(*ERRORS):
            await self.pool.aclose()


Lanes = dict[tuple[str, Origin], _Lane]
"""A sender's lanes. A retired one that was replaced closes itself after its last push."""


class _Unsent(Exception):
    """The endpoint has not processed the push, which may be sent again. `refusal` is the outcome if
    the endpoint refused it; None if nothing was sent.
    """

    def __init__(self, refusal: SendOutcome | None = None) -> None:
        super().__init__()
        self.refusal = refusal


class _Progress:
    """A push's progress, updated by httpcore's trace. `answer` is set with the answer's head."""

    def __init__(self, push: Push) -> None:
        self._push = push
        self.lane: _Lane | None = None
        self.is_begun = False
        self.answer: SendOutcome | None = None

    async def __call__(self, event: str, _info: Any) -> None:
        # Must not wait, or two requests would get the same stream.
        self.is_begun = True
        is_late = self.lane is not None and self.lane.is_retired
        # The push may have waited for a connection.
        if event.endswith(_BEGINS) and (is_late or not may_begin(self._push)):
            raise _Unsent


class _Body:
    """A request's body in one piece. Not a generator, because a broken connection would abandon it
    half-way, which trio warns about.
    """

    def __init__(self, content: bytes) -> None:
        self._left = [content]

    def __aiter__(self) -> "_Body":
        return self

    async def __anext__(self) -> bytes:
        """Return the piece, once."""
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
        """Start the push. `done` is called exactly once, later."""
        self._tasks.start(push.route.subscription, partial(self._push, push), done)

    def forget(self, subscription: str) -> None:
        """End all pushes of the subscription with CLOSED, soon."""
        self._tasks.forget(subscription)

    async def close_idle(self, idle_s: float) -> None:
        """Close the connections that no push has used for this long."""
        now_s = trio.current_time()
        for key, lane in list(self._lanes.items()):
            is_idle = not lane.pushes and now_s - lane.free_since_s >= idle_s
            # Checked again, because closing a lane yields to other tasks.
            if is_idle and self._lanes.get(key) is lane:
                del self._lanes[key]
                await lane.close()

    async def _push(self, push: Push) -> SendOutcome:
        origin = push.route.origin
        is_proxied = self._net.is_proxied(origin)
        # Check here, because the proxy would connect in our place.
        if is_proxied and (refusal := self._net.guard.refusal_of_host(origin.host)):
            return _failure(Failure.FORBIDDEN, refusal)
        timeout_s = push.request_timeout_ms / 1_000
        progress = _Progress(push)
        outcome: SendOutcome | None = None
        with trio.move_on_after(timeout_s):
            outcome = await self._send_until_processed(push, progress)
        # As in the plain sender, the head decides, whatever happens to the body.
        outcome = progress.answer or outcome
        if outcome is None and not progress.is_begun:
            return _failure(Failure.OVERLOADED, f"no connection was free within {timeout_s:g} s")
        if outcome is None:
            return _failure(Failure.TIMEOUT, f"no answer within {timeout_s:g} s")
        if is_proxied and outcome.status == _PROXY_ASKS_FOR_CREDENTIALS:
            # Not the endpoint's answer, so the message must not be given up.
            return _failure(Failure.CONNECT, "the proxy asks for credentials (HTTP 407)")
        return outcome

    async def _send_until_processed(self, push: Push, progress: _Progress) -> SendOutcome:
        refusals = 0
        while True:
            try:
                return await self._exchange(push, progress)
            except _Unsent as unsent:
                refusals += unsent.refusal is not None
                if unsent.refusal is not None and refusals == _REFUSALS_MAX:
                    return unsent.refusal
            if not may_begin(push):
                return NOT_BEGUN

    async def _exchange(self, push: Push, progress: _Progress) -> SendOutcome:
        """Send the push once. Raises _Unsent."""
        lane = progress.lane = await self._take_lane(push.route)
        is_ended = False
        try:
            response = await lane.pool.handle_async_request(self._request(push, progress))
            progress.answer = _outcome_of(response, push.witness)
            is_ended = await self._read_body(response, push.witness)
            return progress.answer
        except _Unsent:
            is_ended = True
            raise
        except ERRORS as error:
            failure = failure_of(error)
            is_ended = failure not in (Failure.IDLE, Failure.MALFORMED)
            silence = f"silent for {push.socket_timeout_ms / 1_000:g} s"
            outcome = _failure(failure, silence if failure is Failure.IDLE else said(error))
            if progress.answer is None and was_unprocessed(error):
                raise _Unsent(outcome) from error
            return outcome
        finally:
            if self._http2 and not is_ended:
                # httpcore does not reset the stream, so it counts against the server's limit.
                lane.retire()
            await self._give_back(push.route, lane)

    async def _take_lane(self, route: PushRoute) -> _Lane:
        if len(self._lanes) >= LANES_MAX:
            await self.close_idle(0.0)
        key = (route.subscription, route.origin)
        lane = self._lanes.get(key)
        if lane is None or lane.is_retired:
            lane = self._lanes[key] = _Lane(self._net, route.origin, http2=self._http2)
        lane.pushes += 1
        return lane

    async def _give_back(self, route: PushRoute, lane: _Lane) -> None:
        key = (route.subscription, route.origin)
        lane.pushes -= 1
        lane.free_since_s = trio.current_time()
        if lane.is_retired and not lane.pushes:
            if self._lanes.get(key) is lane:
                del self._lanes[key]
            await lane.close()

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
        """Read the body up to its bound; False if there is more."""
        seen = 0
        try:
            # Cancelled instead of left, because otherwise httpcore's nested generators would stay
            # open.
            with trio.CancelScope() as scope:
                async for piece in response.aiter_stream():
                    # Thousands of tiny chunks cost more than their bytes.
                    seen += max(len(piece), _PIECE_BYTES_MIN)
                    if witness is not None:
                        witness.hear(piece)
                    if seen > self._net.response_bytes_max:
                        scope.cancel()
                    # httpcore returns buffered data without a checkpoint.
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
    found = (value for name, value in response.headers if name.lower() == b"retry-after")
    return SendOutcome(response.status, next(found, b"").decode("latin-1"))


def _failure(failure: Failure, detail: str) -> SendOutcome:
    return SendOutcome(0, "", failure, detail)


@asynccontextmanager
async def open_httpx_sender(
    net: HttpxNet, *, http2: bool = True, pushes_max: int = PUSHES_MAX
) -> AsyncIterator[HttpxSender]:
    """A sender for the duration of the block. Pushes under way at its end get CLOSED."""
    lanes: Lanes = {}
    try:
        async with trio.open_nursery() as nursery:
            tasks = PushTasks(nursery, pushes_max)
            sender = HttpxSender(tasks, net, lanes, http2=http2)
            nursery.start_soon(_keep_tidy, sender, net.idle_s)
            try:
                yield sender
            finally:
                tasks.close()
                nursery.cancel_scope.cancel()
    finally:
        for lane in lanes.values():
            await lane.close()


async def _keep_tidy(sender: HttpxSender, interval_s: float) -> None:
    while True:
        await trio.sleep(interval_s / 2)
        await sender.close_idle(interval_s)
