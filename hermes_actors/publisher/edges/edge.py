"""The parts that all connections of publishers share, and the network that they need."""

import logging
import math
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from hermes_actors.errors import Refused
from hermes_actors.log.base import Stored
from hermes_actors.publisher.answers import Answer, error_answer
from hermes_actors.publisher.edges.http1.rendering import Renderer
from hermes_actors.publisher.edges.http1.wire import Heads
from hermes_actors.publisher.frontend import Frontend
from hermes_actors.publisher.pending import Pending

_SAID_EACH_S = 60.0
_logger = logging.getLogger(__name__)

UNREAD_S = 30.0
"""How long an answer may wait for a client that reads nothing of it."""


class Wire(Protocol):
    """The way to the client; asyncio's transports are such."""

    def write(self, data: bytes) -> None:
        """Send these bytes. May call `Connection.paused`, then `resumed` later."""

    def can_write_eof(self) -> bool:
        """Whether `write_eof` may be called: not over TLS."""

    def write_eof(self) -> None:
        """Send no more after what has been written."""

    def close(self) -> None:
        """Close after what has been written. `Connection.lost` is called later."""

    def abort(self) -> None:
        """Close at once. `Connection.lost` is called later."""

    def pause_reading(self) -> None:
        """Stop reading: `Connection.received` is not called until `resume_reading`."""

    def resume_reading(self) -> None:
        """Read again."""

    def get_write_buffer_size(self) -> int:
        """How many bytes have not gone."""


class Host(Protocol):
    """The event loop that connections live on, as far as they need it."""

    def soon(self, callback: Callable[[], None]) -> None:
        """Call after the running code, and what else is due now, has returned."""

    def spawn(
        self, task: Coroutine[Any, Any, None], on_failure: Callable[[], None]
    ) -> Callable[[], None]:
        """Run it beside; what is returned cancels it. `on_failure` is called when it fails."""


class Edge:
    """The state of all connections of a node. `tick` is called each sweep, and before the first."""

    def __init__(self, frontend: Frontend, host: Host, *, unread_s: float = UNREAD_S) -> None:
        """A connection of whose answers nothing could be sent for `unread_s` is closed."""
        self.gateway = frontend.gateway
        self.batches = frontend.batches
        self.pages = frontend.pages
        self.host = host
        self.config = config = frontend.config
        self.heads = Heads(config)
        self.renderer = Renderer(config)
        self.head_timeout_s = config.head_timeout_ms / 1_000
        self.silence_s = max(0.0, (config.read_timeout_ms - config.idle_timeout_ms) / 1_000)
        self.unread_s = unread_s
        self.now_s = 0.0
        # When the log was told of a refused head last, and how many there were since.
        self._said_s = -math.inf
        self._unsaid = 0

    def rendered(self, pending: Pending, *, closes: bool) -> bytes:
        """The answer to a pending that has its outcome."""
        gateway = self.gateway
        if type(pending.outcome) is Stored:
            told = gateway.quota_headers(pending) if gateway.tells_quota else ()
            return self.renderer.stored(pending.id, told, closes=closes)
        answer = gateway.answer(pending)
        return self.renderer.answer(answer, is_of_publish=True, closes=closes)

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
