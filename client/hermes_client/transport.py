"""Carries out the steps of a call over httpx: async on asyncio or trio, or sync."""

import ssl
import time
from typing import Any, TypeVar

import anyio
import httpx

from hermes_client.exchange import Pause, Reply, Send, Steps

T = TypeVar("T")

Auth = tuple[str, str] | str | httpx.Auth | None
"""`(user, password)`, a bearer token, or an httpx.Auth that renews tokens."""

_ANSWER_BYTES_MAX = 64 * 1_048_576
_CONNECT_S = 2.0
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
# Others, for a header that cannot be sent for example, are the caller's.
_NO_ANSWER = (
    httpx.NetworkError,
    httpx.ProxyError,
    httpx.RemoteProtocolError,
    httpx.TimeoutException,
    TimeoutError,
)


class AsyncTransport:
    """Connections of an async client."""

    def __init__(self, auth: Auth, tls: ssl.SSLContext | None) -> None:
        self._client = httpx.AsyncClient(**_options(auth, tls))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def carry_out(self, steps: Steps[T]) -> T:
        """Carry out a call, and return its result."""
        try:
            step = next(steps)
            while True:
                reply = Reply()
                if isinstance(step, Pause):
                    await anyio.sleep(step.seconds)
                else:
                    await self._send(step, reply)
                step = steps.send((anyio.current_time(), reply))
        except StopIteration as end:
            result: T = end.value
            return result

    async def _send(self, step: Send, reply: Reply) -> None:
        try:
            with anyio.fail_after(step.timeout_s):
                async with self._client.stream("POST", **_arguments(step)) as response:
                    _begin(reply, response)
                    async for piece in response.aiter_raw():
                        _add(reply, piece)
        except _NO_ANSWER as error:
            _fail(reply, error)


class Transport:
    """Connections of a sync client; threads may share it."""

    def __init__(self, auth: Auth, tls: ssl.SSLContext | None) -> None:
        self._client = httpx.Client(**_options(auth, tls))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def carry_out(self, steps: Steps[T]) -> T:
        """Carry out a call, and return its result."""
        try:
            step = next(steps)
            while True:
                reply = Reply()
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                else:
                    self._send(step, reply)
                step = steps.send((time.monotonic(), reply))
        except StopIteration as end:
            result: T = end.value
            return result

    def _send(self, step: Send, reply: Reply) -> None:
        end_s = time.monotonic() + step.timeout_s
        try:
            with self._client.stream("POST", **_arguments(step)) as response:
                _begin(reply, response)
                for piece in response.iter_raw():
                    _add(reply, piece)
                    if time.monotonic() > end_s:
                        raise httpx.ReadTimeout("the answer takes too long")
        except _NO_ANSWER as error:
            _fail(reply, error)


def _options(auth: Auth, tls: ssl.SSLContext | None) -> dict[str, Any]:
    headers = {"User-Agent": "hermes_client/0.1.0", "Accept-Encoding": "identity"}
    if isinstance(auth, str):
        headers["Authorization"] = f"Bearer {auth}"
        auth = None
    return {"auth": auth, "verify": True if tls is None else tls, "headers": headers}


def _arguments(step: Send) -> dict[str, Any]:
    path, body, headers = step.request
    return {
        "url": step.base_url + path,
        "content": body,
        # As bytes, because httpx encodes text as ASCII.
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "timeout": httpx.Timeout(step.timeout_s, connect=min(_CONNECT_S, step.timeout_s)),
    }


def _begin(reply: Reply, response: httpx.Response) -> None:
    reply.status, reply.headers = response.status_code, dict(response.headers.items())


def _add(reply: Reply, piece: bytes) -> None:
    reply.body += piece
    if len(reply.body) > _ANSWER_BYTES_MAX:
        raise httpx.RemoteProtocolError("the answer is too large")


def _fail(reply: Reply, error: Exception) -> None:
    cause: BaseException | None = error
    while cause and not str(cause):
        # Some errors say nothing themselves.
        cause = cause.__cause__ or cause.__context__
    reply.reason = str(cause or type(error).__name__)
    reply.may_have_arrived = not isinstance(error, _NEVER_SENT)
