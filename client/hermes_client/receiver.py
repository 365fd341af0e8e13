"""An ASGI app that receives deliveries: `uvicorn module:app` or `hypercorn module:app`."""

import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from hermes_client.errors import DeliveryMalformed, NotNow, Refuse, SignatureInvalid
from hermes_client.messages import Message, parse
from hermes_client.signatures import Verifier

BODY_BYTES_MAX = 20 * 1_048_576
Secret = str | Sequence[str] | None
_Answer = tuple[int, str, dict[str, str]]

OnMessage = Callable[[Message], Awaitable[object]]

_logger = logging.getLogger(__name__)


class Receiver:
    """Receives the messages of topics, one function for each.

    >>> app = Receiver(secret="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    >>> @app.on("shop.orders")
    ... async def made(message):
    ...     print(message.json())

    `secret` is the subscription's, or a list while it is changed; None accepts unsigned requests.
    The topic is the header `Hermes-Topic-Name`, or else the last part of the endpoint's path; a
    receiver with a single topic takes every request without that header. Bodies have at most
    `body_bytes_max`.

    | the function | answer | the broker |
    |---|---|---|
    | returns | 200 | is done |
    | raises Refuse | 422 | makes a dead letter |
    | raises NotNow | 503, `Retry-After` | retries after that time |
    | raises another exception, which is logged | 500 | retries |

    Requests with a wrong signature get 401, malformed ones 400, unknown topics 503 (so that
    nothing is lost by a misspelt name).
    """

    def __init__(
        self, *, secret: Secret, tolerance_s: float = 300.0, body_bytes_max: int = BODY_BYTES_MAX
    ) -> None:
        self._verifier = None if secret is None else Verifier(secret, tolerance_s=tolerance_s)
        self._body_bytes_max = body_bytes_max
        self._on: dict[str, OnMessage] = {}

    def on(self, topic: str) -> Callable[[OnMessage], OnMessage]:
        """Have the function called with each message of the topic. If it fails for a message of a
        batch, the whole batch comes again.
        """
        if topic in self._on:
            raise ValueError(f"{topic} has a function already")

        def register(function: OnMessage) -> OnMessage:
            self._on[topic] = function
            return function

        return register

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request of an ASGI server."""
        if scope["type"] == "lifespan":
            for part in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{part}.complete"})
            return
        answer = await self._answer(scope, receive)
        if answer is None:
            return
        status, text, headers = answer
        body = text.encode()
        fields = {"content-type": "text/plain; charset=utf-8", "content-length": str(len(body))}
        pairs = [(name.encode(), value.encode()) for name, value in (fields | headers).items()]
        await send({"type": "http.response.start", "status": status, "headers": pairs})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Any, receive: Any) -> _Answer | None:
        """The answer to a request; None if its sender has gone."""
        if scope["method"] != "POST":
            return 405, "POST a delivery", {"allow": "POST"}
        body = bytearray()
        has_more = True
        while has_more:
            event = await receive()
            if event["type"] == "http.disconnect":
                return None
            body += event.get("body", b"")
            if len(body) > self._body_bytes_max:
                return 413, f"the body has more than {self._body_bytes_max} bytes", {}
            has_more = event.get("more_body", False)
        fields = {n.decode("latin-1"): v.decode("utf-8", "replace") for n, v in scope["headers"]}
        own_id = fields.get("hermes-batch-id") or fields.get("hermes-message-id", "")
        try:
            if self._verifier and self._verifier.verify(fields, bytes(body)) != own_id:
                raise SignatureInvalid("webhook-id is signed, but not the message's id")
            messages = parse(fields, bytes(body))
        except SignatureInvalid as error:
            _logger.warning("a delivery is refused: %s", error)
            return 401, str(error), {}
        except DeliveryMalformed as error:
            return 400, str(error), {}
        named = fields.get("hermes-topic-name")
        topic = named or scope["path"].rpartition("/")[2]
        function = self._on.get(topic)
        if function is None and not named and len(self._on) == 1:
            (function,) = self._on.values()
        if function is None:
            return 503, f"no function for topic {topic!r}; there is {', '.join(self._on)}", {}
        return await _call(function, messages)


async def _call(function: OnMessage, messages: Sequence[Message]) -> _Answer:
    try:
        for message in messages:
            await function(message)
    except Refuse as error:
        return 422, str(error), {}
    except NotNow as error:
        return 503, str(error), {"retry-after": str(max(0, math.ceil(error.retry_after_s)))}
    except Exception:
        _logger.exception("a message could not be processed; it comes again")
        return 500, "the message could not be processed", {}
    return 200, "", {}
