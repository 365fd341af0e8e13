"""The parts that all connections of a listener share, and the network that they need."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from hermes_actors.config import FrontendConfig
from hermes_actors.errors import Refused
from hermes_actors.publisher.answers import Answer, error_answer
from hermes_actors.publisher.edges.http1.wire import Heads, Renderer
from hermes_actors.publisher.edges.request import Request
from hermes_actors.publisher.pending import Pending
from hermes_actors.security.account import ClientCertificate

_SAID_EACH_S = 60.0
_logger = logging.getLogger(__name__)

UNREAD_S = 30.0
"""How long an answer may wait for a client that reads nothing of it."""
IDLE_S = 60.0
"""How long a connection may wait for its next request."""
LEAVE_S = 0.5
"""How long a connection of a listener that ends may idle before it is closed: a request that is on
its way by then is answered, after which its client moves on.
"""

Fields = list[tuple[bytes, bytes]]

Wire = asyncio.Transport
"""The way to the client."""


class Host(Protocol):
    """The event loop that connections live on, as far as they need it."""

    def soon(self, callback: Callable[[], None]) -> None:
        """Call after the running code, and what else is due now, has returned."""

    def spawn(
        self, task: Coroutine[Any, Any, None], on_failure: Callable[[], None]
    ) -> Callable[[], None]:
        """Run it beside; what is returned cancels it. `on_failure` is called when it fails."""


class Body:
    """Takes the body of a request, and is told of its client. Each call returns at once."""

    owes_answer = False
    """True while a body that breaks off may still be answered."""

    def data(self, piece: bytes) -> None:
        """Take a piece of it."""
        raise NotImplementedError

    def end(self) -> None:
        """Take its end."""
        raise NotImplementedError

    def gone(self) -> None:
        """Its rest will not come, and nobody reads an answer."""
        raise NotImplementedError


class Exchange(Body):
    """A request that writes its own answer, in pieces, to its line."""

    def sent(self) -> None:
        """The client has taken all that was written."""

    def sweep(self, now_s: float) -> None:
        """End it if its client does nothing for too long."""


class Line(Protocol):
    """The way to answer one request: its connection over HTTP/1.1, its stream over HTTP/2."""

    @property
    def certificate(self) -> ClientCertificate | None:
        """The client's, verified."""

    @property
    def address(self) -> str:
        """The client's, without its port."""

    @property
    def is_paused(self) -> bool:
        """The client does not read its answers; `Exchange.sent` is called when it has."""

    @property
    def unread_bytes(self) -> int:
        """How much of what was written waits for the client to read."""

    def answer(self, answer: Answer, *, is_of_publish: bool = False) -> None:
        """Answer now; the rest of the request is read and dropped."""

    def later(
        self, ask: Callable[[], Awaitable[Answer | None]], then: Callable[[], None] | None = None
    ) -> None:
        """Answer when it is known what; `then` goes on instead where that is nothing."""

    def owe(self, pending: Pending) -> bytes | None:
        """Answer with what becomes of this one, whose `notify` is `settled`. The whole body, if
        it is here; else it goes to what `take_body` names.
        """

    def settled(self, pending: Pending) -> None:
        """Take note of an outcome that is owed."""

    def take_body(self, body: Body) -> None:
        """Give the request's body to this; an Exchange answers it, too."""

    def begin(self, status: int, fields: Fields) -> None:
        """Begin an exchange's answer."""

    def write(self, data: bytes) -> None:
        """Send a piece of an exchange's answer, which has begun."""

    def finish(self) -> None:
        """End an exchange's answer."""

    def hold(self) -> None:
        """Call `data` and `end` of an exchange no more for now."""

    def release(self) -> None:
        """Call them again."""

    def abort(self) -> None:
        """Close at once."""


class Edge:
    """The state of all connections of a listener, and what becomes of their requests. `tick` is
    called each sweep, and before the first.
    """

    answers_half_closed = True
    """False: a client that has sent its end is gone."""

    def __init__(
        self,
        config: FrontendConfig,
        host: Host,
        *,
        unread_s: float = UNREAD_S,
        idle_s: float = IDLE_S,
        silence_s: float = 0.0,
    ) -> None:
        """A connection of whose answers nothing could be sent for `unread_s`, or without a request
        for `idle_s`, is closed; one that was ended without a word, after `silence_s`.
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
        # When the log was told of a refused head last, and how many there were since.
        self._said_s = -math.inf
        self._unsaid = 0

    def begin(self, line: Line, request: Request) -> None:
        """Begin a request whose head is within the limits."""
        raise NotImplementedError

    @property
    def is_leaving(self) -> bool:
        """True when clients should move their connections elsewhere."""
        return False

    def rendered(self, pending: Pending, *, closes: bool) -> bytes:
        """The answer to a pending that has its outcome, as the bytes of HTTP/1.1."""
        return self.renderer.answer(pending.answer, is_of_publish=True, closes=closes)

    def tick(self, now_s: float, now_ms: int) -> None:
        """Set the time, monotonic and by the wall clock."""
        self.now_s = now_s
        self.renderer.tick(now_ms)

    def refuse(self, refusal: Refused) -> Answer:
        """The answer to a request whose head is above a limit. The log is told, a line a minute at
        most: whoever sends such heads sends many.
        """
        if self.now_s - self._said_s < _SAID_EACH_S:
            self._unsaid += 1
        else:
            more = f"; {self._unsaid} more heads were refused since this was said last"
            _logger.warning("Refused: %s%s", refusal.message, more if self._unsaid else "")
            self._said_s, self._unsaid = self.now_s, 0
        return error_answer(refusal, "", closes=True)
