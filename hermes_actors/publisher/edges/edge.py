"""The state that all connections of a listener share, and the interfaces between connections and
requests.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from hermes_actors.config import FrontendConfig
from hermes_actors.errors import Refused
from hermes_actors.publisher.answers import Answer, error_answer
from hermes_actors.publisher.edges.http1.renderer import Renderer
from hermes_actors.publisher.edges.http2.heads import Heads
from hermes_actors.publisher.edges.request import Request
from hermes_actors.publisher.pending import Pending
from hermes_actors.security.account import ClientCertificate

_SAID_EACH_S = 60.0
_logger = logging.getLogger(__name__)

UNREAD_S = 30.0
"""How long an answer may stay unread by its client."""
IDLE_S = 60.0
"""How long a connection may be idle between requests."""
LEAVE_S = 0.5
"""How long a connection may stay idle when its listener ends. A request that is already on its way
is answered, and its client then moves on.
"""

Fields = list[tuple[bytes, bytes]]

Wire = asyncio.Transport
"""The transport to the client."""


class Host(Protocol):
    """What connections need from their event loop."""

    def soon(self, callback: Callable[[], None]) -> None:
        """Call `callback` in a later turn of the loop, after everything that is due now."""

    def spawn(
        self, task: Coroutine[Any, Any, None], on_failure: Callable[[], None]
    ) -> Callable[[], None]:
        """Run the coroutine concurrently; call the returned function to cancel it. `on_failure` is
        called if it fails.
        """


class Body:
    """Receives the body of a request, and learns when its client has gone. Each call returns at
    once.
    """

    owes_answer = False
    """True if a malformed body may still be answered."""

    def data(self, piece: bytes) -> None:
        """Take a piece of the body."""
        raise NotImplementedError

    def end(self) -> None:
        """The body is complete."""
        raise NotImplementedError

    def gone(self) -> None:
        """The rest of the body will not come, and nobody reads an answer."""
        raise NotImplementedError


class Exchange(Body):
    """A request that writes its own answer to its line, in pieces."""

    def sent(self) -> None:
        """The client has read everything that was written."""

    def sweep(self, now_s: float) -> None:
        """End the request if its client does nothing for too long."""


class Line(Protocol):
    """What a request needs to answer: its connection in HTTP/1.1, its stream in HTTP/2."""

    @property
    def certificate(self) -> ClientCertificate | None:
        """The client's verified certificate; None if there is none."""

    @property
    def address(self) -> str:
        """The client's, without its port."""

    @property
    def is_paused(self) -> bool:
        """True while the client does not read its answers; `Exchange.sent` is called when it
        has.
        """

    @property
    def unread_bytes(self) -> int:
        """How many written bytes wait for the client to read."""

    def answer(self, answer: Answer, *, is_of_publish: bool = False) -> None:
        """Send this answer; the rest of the request is read and dropped."""

    def later(
        self, ask: Callable[[], Awaitable[Answer | None]], then: Callable[[], None] | None = None
    ) -> None:
        """Send the answer that `ask` returns. If it returns None, call `then` to go on with the
        request.
        """

    def owe(self, pending: Pending) -> bytes | None:
        """Answer with the outcome of this pending, whose `notify` is `settled`. Returns the whole
        body if it has arrived; else it goes to the body given to `take_body`.
        """

    def settled(self, pending: Pending) -> None:
        """The outcome of an owed pending is known: send the answer."""

    def take_body(self, body: Body) -> None:
        """Deliver the request's body to this object. An Exchange also writes the answer."""

    def begin(self, status: int, fields: Fields) -> None:
        """Begin an exchange's answer."""

    def write(self, data: bytes) -> None:
        """Send a piece of an exchange's answer, which has begun."""

    def finish(self) -> None:
        """End an exchange's answer."""

    def hold(self) -> None:
        """Stop calling `data` and `end` of the exchange for now."""

    def release(self) -> None:
        """Resume calling them."""

    def abort(self) -> None:
        """Close at once."""


class Edge:
    """The state that all connections of a listener share, and the entry for their requests. `tick`
    is called before the first request and in each sweep.
    """

    answers_half_closed = True
    """False if a client that has closed its sending side counts as gone."""

    def __init__(
        self,
        config: FrontendConfig,
        host: Host,
        *,
        unread_s: float = UNREAD_S,
        idle_s: float = IDLE_S,
        silence_s: float = 0.0,
    ) -> None:
        """Close a connection after `unread_s` in which nothing of its answers could be sent, or
        after `idle_s` without a request. A connection that is ended without an answer is closed
        after `silence_s`.
        """
        self.host = host
        self.config = config
        self.heads = Heads(config)
        self.renderer = Renderer(config)
        self.head_timeout_s = config.head_timeout_ms / 1_000
        self.silence_s = silence_s
        self.unread_s = unread_s
        self.idle_s = idle_s
        self.now_s = 0.0
        # When a refused head was last logged, and how many were refused since.
        self._said_s = -math.inf
        self._unsaid = 0

    def begin(self, line: Line, request: Request) -> None:
        """Start a request whose head is within the limits."""
        raise NotImplementedError

    @property
    def is_leaving(self) -> bool:
        """True when clients should move their connections elsewhere."""
        return False

    def rendered(self, pending: Pending, *, closes: bool) -> bytes:
        """The HTTP/1.1 answer to a pending that has its outcome."""
        return self.renderer.answer(pending.answer, is_of_publish=True, closes=closes)

    def tick(self, now_s: float, now_ms: int) -> None:
        """Set the time: monotonic, and by the wall clock."""
        self.now_s = now_s
        self.renderer.tick(now_ms)

    def refuse(self, refusal: Refused) -> Answer:
        """The answer to a request whose head is above a limit. It is logged at most once a minute,
        because a client that sends one such head usually sends many.
        """
        if self.now_s - self._said_s < _SAID_EACH_S:
            self._unsaid += 1
        else:
            more = f"; {self._unsaid} more were refused since the last such line"
            _logger.warning("Refused: %s%s", refusal.message, more if self._unsaid else "")
            self._said_s, self._unsaid = self.now_s, 0
        return error_answer(refusal, "", closes=True)
