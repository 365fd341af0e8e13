"""An ASGI app for other nodes of the datacentre, which know a key. Clients do not use it."""

import hmac
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from hermes_actors.errors import HermesError
from hermes_actors.runtime.bridge import BridgeClosed
from hermes_actors.runtime.disconnects import until_gone

App = Callable[[Any, Any, Any], Awaitable[None]]

BODY_BYTES_MAX = 1_048_576


class NoSuchCall(Exception):
    """The node's version has no such call."""


def keyed_app(header: str, key: str, answer: Callable[[Any, bytes], Awaitable[bytes]]) -> App:
    """Answer requests whose `header` is the key: `answer` gets the scope and the body."""

    async def respond(scope: Any, receive: Any) -> tuple[int, bytes]:
        headers = dict(scope["headers"])
        if not hmac.compare_digest(headers.get(header.lower().encode(), b""), key.encode()):
            return 403, b"another node has this address now, or the key is old"
        body, has_more = b"", True
        while has_more and len(body) <= BODY_BYTES_MAX:
            event = await receive()
            body += event.get("body", b"")
            has_more = event.get("more_body", False)
        try:
            return 200, await until_gone(receive, answer(scope, body))
        except NoSuchCall:
            return 404, b"this version has no such call"
        except msgspec.DecodeError as error:
            return 400, str(error).encode()
        except HermesError as error:
            return error.status, error.message.encode()
        except BridgeClosed:
            return 421, b"the node is stopping, or the client has gone"

    async def app(scope: Any, receive: Any, send: Any) -> None:
        status, body = await respond(scope, receive)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app
