"""Carries out the steps of a call over httpx: async on asyncio or trio, or sync."""

import ssl
import time
from typing import Any, TypeVar, cast

import anyio
import httpx

from hermes_client.exchange import Reply, Send, Steps

T = TypeVar("T")

Auth = tuple[str, str] | str | httpx.Auth | None
"""`(user, password)`, a bearer token, or an httpx.Auth that renews tokens."""
Tls = ssl.SSLContext | None

_ANSWER_BYTES_MAX = 64 * 1_048_576
_CONNECT_S = 2.0
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)


def async_client(auth: Auth, tls: Tls) -> httpx.AsyncClient:
    """The connections of an async client."""
    return httpx.AsyncClient(**_options(auth, tls))


def sync_client(auth: Auth, tls: Tls) -> httpx.Client:
    """The connections of a sync client; threads may share them."""
    return httpx.Client(**_options(auth, tls))


async def carry_out(client: httpx.AsyncClient, steps: Steps[T]) -> T:
    """Carry out a call, and return its result."""
    try:
        step = next(steps)
        while True:
            reply = Reply()
            if isinstance(step, float):
                await anyio.sleep(step)
            else:
                await _send(client, step, reply)
            step = steps.send((anyio.current_time(), reply))
    except StopIteration as end:
        return cast("T", end.value)


async def _send(client: httpx.AsyncClient, step: Send, reply: Reply) -> None:
    try:
        with anyio.fail_after(step[2]):
            async with client.stream("POST", **_arguments(step)) as response:
                reply.status, reply.headers = response.status_code, dict(response.headers)
                async for piece in response.aiter_raw():
                    _add(reply, piece)
    except (httpx.TransportError, TimeoutError) as error:
        _fail(reply, error)


def carry_out_sync(client: httpx.Client, steps: Steps[T]) -> T:
    """Carry out a call, and return its result."""
    try:
        step = next(steps)
        while True:
            reply = Reply()
            if isinstance(step, float):
                time.sleep(step)
            else:
                _send_sync(client, step, reply)
            step = steps.send((time.monotonic(), reply))
    except StopIteration as end:
        return cast("T", end.value)


def _send_sync(client: httpx.Client, step: Send, reply: Reply) -> None:
    end_s = time.monotonic() + step[2]
    try:
        with client.stream("POST", **_arguments(step)) as response:
            reply.status, reply.headers = response.status_code, dict(response.headers)
            for piece in response.iter_raw():
                _add(reply, piece)
                if time.monotonic() > end_s:
                    raise httpx.ReadTimeout("the answer takes too long")
    except httpx.TransportError as error:
        _fail(reply, error)


def _options(auth: Auth, tls: Tls) -> dict[str, Any]:
    headers = {"User-Agent": "hermes_client/0.1.0", "Accept-Encoding": "identity"}
    if isinstance(auth, str):
        auth, headers["Authorization"] = None, f"Bearer {auth}"
    return {"auth": auth, "verify": tls or True, "headers": headers}


def _arguments(step: Send) -> dict[str, Any]:
    base_url, (path, body, headers), timeout_s = step
    return {
        "url": base_url + path,
        "content": body,
        # As bytes, because httpx encodes text as ASCII.
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "timeout": httpx.Timeout(timeout_s, connect=min(_CONNECT_S, timeout_s)),
    }


def _add(reply: Reply, piece: bytes) -> None:
    reply.body += piece
    if len(reply.body) > _ANSWER_BYTES_MAX:
        raise httpx.RemoteProtocolError("the answer is too large")


def _fail(reply: Reply, error: Exception) -> None:
    if isinstance(error, httpx.LocalProtocolError):
        # The caller's, for example a header that cannot be sent.
        raise error
    cause: BaseException | None = error
    while cause and not str(cause):
        # Some errors say nothing themselves.
        cause = cause.__cause__ or cause.__context__
    reply.reason = str(cause or type(error).__name__)
    reply.may_have_arrived = not isinstance(error, _NEVER_SENT)
