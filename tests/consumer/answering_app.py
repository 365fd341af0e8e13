"""An ASGI app that answers in various ways; the first part of the path chooses."""

import asyncio  # noqa: TID251 -- the servers that run it are asyncio's
from typing import Any


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Handle one request, or the server's lifespan."""
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    kind = scope["path"].strip("/")
    if kind == "early":
        await answer(send, 413, [(b"content-length", b"0")], [])
        return
    body, more = b"", True
    while more:
        event = await receive()
        body += event.get("body", b"")
        more = event.get("more_body", False)
    length = str(len(body)).encode()
    if kind == "echo":
        await answer(send, 200, [(b"content-length", length), (b"x-length", length)], [body])
    elif kind == "chunks":
        await answer(send, 202, [], [body[:3], body[3:]])
    elif kind == "empty":
        await answer(send, 204, [], [])
    elif kind == "later":
        await answer(send, 503, [(b"retry-after", b"7"), (b"content-length", b"0")], [])
    elif kind == "endless":
        await answer(send, 200, [], [b"x" * 50_000] * 40)
    else:
        await asyncio.sleep(60)


async def answer(
    send: Any, status: int, headers: list[tuple[bytes, bytes]], pieces: list[bytes]
) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    for piece in pieces:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
