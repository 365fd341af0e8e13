"""One token request over the network: guarded like a push, bounded in time and in bytes."""

from urllib.parse import urlsplit

import httpcore
import trio

from hermes_actors import __version__
from hermes_actors.consumer.senders.httpx.net import (
    PIECE_BYTES_MIN,
    TRANSPORT_ERRORS,
    Body,
    HttpxNet,
    said,
)
from hermes_actors.consumer.senders.oauth.wire import Answer, Denied, OAuthCredentials, read_answer
from hermes_actors.consumer.senders.sender import Origin

ANSWER_BYTES_MAX = 65_536

_PORTS = {"http": 80, "https": 443}
_HEADERS = [
    (b"User-Agent", f"hermes_actors/{__version__}".encode("ascii")),
    (b"Accept", b"application/json"),
    (b"Content-Type", b"application/x-www-form-urlencoded"),
    (b"Connection", b"close"),
]


async def ask_for_token(net: HttpxNet, credentials: OAuthCredentials) -> Answer:
    """Ask the provider for a token, by HTTP/1.1, within its time-outs. Redirects are not followed.

    A trio coroutine: what goes wrong is a `Denied` that says what.
    """
    provider = credentials.provider
    timeout_s = provider.request_timeout / 1_000
    parts = urlsplit(provider.token_endpoint)
    try:
        host = (parts.hostname or "").encode("idna").decode("ascii")
        origin = Origin(parts.scheme, host, parts.port or _PORTS[parts.scheme])
    except (ValueError, KeyError):
        return Denied("its tokenEndpoint cannot be read")
    if net.is_proxied(origin) and (refusal := net.guard.refusal_of_host(host)):
        return Denied(refusal)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    silence_s = provider.socket_timeout / 1_000 or None
    try:
        with trio.move_on_after(timeout_s):
            async with net.open_pool(origin, http2=False) as pool:
                return await _exchange(net, pool, origin, target, credentials.form, silence_s)
    except httpcore.TimeoutException:
        return Denied(f"{origin}: no connection, or silence, for too long")
    except TRANSPORT_ERRORS as error:
        return Denied(f"{origin}: {said(error)}")
    return Denied(f"{origin}: no answer within {timeout_s:g} s")


async def _exchange(
    net: HttpxNet,
    pool: httpcore.AsyncConnectionPool,
    origin: Origin,
    target: str,
    form: bytes,
    silence_s: float | None,
) -> Answer:
    url = httpcore.URL(
        scheme=origin.scheme.encode("ascii"),
        host=origin.host.encode("ascii"),
        port=origin.port,
        target=target.encode("ascii", "xmlcharrefreplace"),
    )
    authority = f"[{origin.host}]" if ":" in origin.host else origin.host
    if origin.port != _PORTS[origin.scheme]:
        authority += f":{origin.port}"
    request = httpcore.Request(
        b"POST",
        url,
        headers=[
            (b"Host", authority.encode("ascii")),
            *_HEADERS,
            (b"Content-Length", b"%d" % len(form)),
        ],
        content=Body(form),
        extensions={"timeout": net.time_outs(silence_s)},
    )
    response = await pool.handle_async_request(request)
    pieces: list[bytes] = []
    seen = 0
    try:
        with trio.CancelScope() as scope:
            async for piece in response.aiter_stream():
                pieces.append(piece)
                seen += max(len(piece), PIECE_BYTES_MIN)
                if seen > ANSWER_BYTES_MAX:
                    scope.cancel()
                await trio.lowlevel.cancel_shielded_checkpoint()
    finally:
        with trio.CancelScope(shield=True):
            await response.aclose()
    body = b"".join(pieces)
    if seen > ANSWER_BYTES_MAX:
        return Denied(f"its answer is longer than {ANSWER_BYTES_MAX} bytes")
    return read_answer(response.status, body)
