"""Pushes over httpx: HTTP/2, with ALPN for https and with prior knowledge for http.

A trio task for each push, bounded; for what the plain sender does not speak.
"""

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import httpx
import trio

from hermes_actors.consumer.headers import parse_lines
from hermes_actors.consumer.sender import (
    PROBE_TIMEOUT_S,
    Done,
    Failure,
    Probed,
    Push,
    Route,
    SendOutcome,
)

T = TypeVar("T")

# What HTTP/2 forbids in a request, or knows by another name.
_NOT_IN_HTTP2 = frozenset((b"keep-alive", b"connection"))


class HttpxSender:
    """`Sender`'s promise over httpx clients, on trio. Open it with `open_httpx_sender`."""

    def __init__(
        self,
        nursery: trio.Nursery,
        plain: httpx.AsyncClient,
        encrypted: httpx.AsyncClient,
        *,
        pushes_max: int,
        connect_timeout_s: float,
        response_bytes_max: int,
    ) -> None:
        self._nursery = nursery
        self._clients = {"http": plain, "https": encrypted}
        self._pushes_max = pushes_max
        self._connect_timeout_s = connect_timeout_s
        self._response_bytes_max = response_bytes_max
        self._pushes = 0
        self._is_closed = False

    def send(self, push: Push, done: Done) -> None:
        """Start the push; `done` is called exactly once, later."""
        if self._is_closed:
            outcome = SendOutcome(0, "", Failure.CLOSED)
            trio.lowlevel.spawn_system_task(_tell, done, outcome)
        elif self._pushes >= self._pushes_max:
            outcome = SendOutcome(0, "", Failure.OVERLOADED, "too many pushes wait")
            self._nursery.start_soon(_tell, done, outcome)
        else:
            self._pushes += 1
            self._nursery.start_soon(self._push, push, done)

    def probe(self, route: Route, done: Probed) -> None:
        """Connect and close again; `done` is called exactly once, later."""
        if self._is_closed:
            trio.lowlevel.spawn_system_task(_tell, done, Failure.CLOSED)
        else:
            self._nursery.start_soon(self._probe, route, done)

    def close(self) -> None:
        """Later pushes end with CLOSED at once; those under way when the block ends."""
        self._is_closed = True

    async def _push(self, push: Push, done: Done) -> None:
        outcome = SendOutcome(0, "", Failure.CLOSED)
        try:
            outcome = await self._attempt(push)
        finally:
            self._pushes -= 1
            done(outcome)

    async def _probe(self, route: Route, done: Probed) -> None:
        failure: Failure | None = Failure.CLOSED
        try:
            failure = Failure.TIMEOUT
            with trio.move_on_after(min(self._connect_timeout_s, PROBE_TIMEOUT_S)):
                try:
                    stream = await trio.open_tcp_stream(route.origin.host, route.origin.port)
                    failure = None
                    await trio.aclose_forcefully(stream)
                except OSError:
                    failure = Failure.CONNECT
        finally:
            done(failure)

    async def _attempt(self, push: Push) -> SendOutcome:
        timeout_s = push.request_timeout_ms / 1_000
        outcome = SendOutcome(0, "", Failure.TIMEOUT, f"no answer within {timeout_s:g} s")
        with trio.move_on_after(timeout_s):
            try:
                outcome = await self._exchange(push)
            except httpx.ConnectTimeout:
                limit_s = self._connect_timeout_s
                outcome = _failure(Failure.CONNECT, f"no connection within {limit_s:g} s")
            except httpx.TimeoutException as error:
                outcome = _failure(Failure.IDLE, str(error))
            except (httpx.ConnectError, httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
                outcome = _failure(Failure.CONNECT, str(error))
            except httpx.ProtocolError as error:
                is_reset = isinstance(error, httpx.RemoteProtocolError) and "disconnect" in str(
                    error
                )
                outcome = _failure(Failure.RESET if is_reset else Failure.MALFORMED, str(error))
            except (httpx.HTTPError, OSError) as error:
                outcome = _failure(Failure.RESET, str(error))
        return outcome

    async def _exchange(self, push: Push) -> SendOutcome:
        route = push.route
        socket_timeout_s = push.socket_timeout_ms / 1_000 or None
        request = httpx.Request(
            "POST",
            f"{route.origin}{route.target}",
            headers=[
                (name, value)
                for name, value in parse_lines(push.lines)
                if name.lower() not in _NOT_IN_HTTP2
            ],
            content=push.body,
            extensions={
                "timeout": httpx.Timeout(
                    socket_timeout_s, connect=self._connect_timeout_s
                ).as_dict()
            },
        )
        client = self._clients[route.origin.scheme]
        response = await client.send(request, stream=True)
        outcome = SendOutcome(response.status_code, response.headers.get("retry-after", ""))
        try:
            await self._drain(response)
        except httpx.HTTPError:
            # The head decides, as in the plain sender.
            return outcome
        finally:
            with trio.CancelScope(shield=True):
                await response.aclose()
        return outcome

    async def _drain(self, response: httpx.Response) -> None:
        seen = 0
        # Cancelled rather than left: httpx' nested generators only close by what is raised inside.
        with trio.CancelScope() as scope:
            async for piece in response.aiter_raw():
                seen += len(piece)
                if seen > self._response_bytes_max:
                    scope.cancel()


def _failure(failure: Failure, detail: str) -> SendOutcome:
    return SendOutcome(0, "", failure, detail)


async def _tell(done: Callable[[T], None], outcome: T) -> None:
    done(outcome)


@asynccontextmanager
async def open_httpx_sender(
    *,
    pushes_max: int = 1_000,
    connect_timeout_s: float = 15.0,
    response_bytes_max: int = 65_536,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[HttpxSender]:
    """A sender for the length of the block; pushes under way at its end end with CLOSED."""
    verify = True if tls is None else tls
    limits = httpx.Limits(max_connections=pushes_max)
    async with (
        httpx.AsyncClient(http1=False, http2=True, limits=limits, trust_env=False) as plain,
        httpx.AsyncClient(http2=True, verify=verify, limits=limits, trust_env=False) as encrypted,
        trio.open_nursery() as nursery,
    ):
        sender = HttpxSender(
            nursery,
            plain,
            encrypted,
            pushes_max=pushes_max,
            connect_timeout_s=connect_timeout_s,
            response_bytes_max=response_bytes_max,
        )
        try:
            yield sender
        finally:
            sender.close()
            nursery.cancel_scope.cancel()
