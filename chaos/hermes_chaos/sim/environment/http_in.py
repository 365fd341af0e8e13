"""A publisher's HTTP client: calls a node's ASGI application in process, one request at a time."""

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

import msgspec
import trio
from msgspec import Struct

Event = MutableMapping[str, Any]
Application = Callable[
    [Event, Callable[[], Awaitable[Event]], Callable[[Event], Awaitable[None]]], Awaitable[None]
]
"""An ASGI 3 application that runs on trio."""


class Response(Struct, frozen=True):
    """What came back. `message_id` and an error's `code` are "" where the answer names none."""

    status: int
    message_id: str
    code: str = ""


class Exchange:
    """One request to one application, and what has been answered so far."""

    def __init__(self, path: str, headers: Sequence[tuple[str, str]], body: bytes) -> None:
        self._scope: Event = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers],
            "client": ("127.0.0.1", 40_000),
            "server": ("127.0.0.1", 8_080),
        }
        # In two pieces where there are two: an edge must not count on one read.
        half = len(body) // 2 if len(body) > 1_024 else len(body)
        self._pieces = [body[:half], body[half:]] if half < len(body) else [body]
        self._is_over = trio.Event()
        self.response: Response | None = None

    async def run(self, app: Application) -> None:
        """Call the application until it has answered and returned."""
        try:
            await app(self._scope, self._receive, self._send)
        finally:
            self._is_over.set()

    async def _receive(self) -> Event:
        if not self._pieces:
            await self._is_over.wait()
            return {"type": "http.disconnect"}
        await trio.lowlevel.checkpoint()
        piece = self._pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(self._pieces)}

    async def _send(self, event: Event) -> None:
        if event["type"] == "http.response.start":
            headers = {name.lower(): value for name, value in event["headers"]}
            message_id = headers.get(b"hermes-message-id", b"").decode()
            self.response = Response(event["status"], message_id)
        elif self.response is not None and self.response.status >= 400 and event["body"]:
            error = msgspec.json.decode(event["body"], type=dict[str, str])
            self.response = msgspec.structs.replace(self.response, code=error["code"])
        await trio.lowlevel.checkpoint()
