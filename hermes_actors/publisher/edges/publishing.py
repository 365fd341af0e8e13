"""Publishers' requests, over any HTTP version: a page, one message, or a batch.

Nothing here waits, and no request has a task: every call returns at once.
"""

from functools import partial

from hermes_actors.config import FrontendConfig
from hermes_actors.log.base import Stored
from hermes_actors.publisher.answers import Abandoned, Answer, too_long_for_server
from hermes_actors.publisher.authentication import PublishSecurity
from hermes_actors.publisher.demands import Head
from hermes_actors.publisher.edges.edge import UNREAD_S, Body, Edge, Host, Line
from hermes_actors.publisher.edges.request import Request
from hermes_actors.publisher.frontend import Frontend
from hermes_actors.publisher.gateway import Gateway
from hermes_actors.publisher.pending import Pending
from hermes_actors.publisher.status import Pages


class PagesEdge(Edge):
    """The edge in front of a node's pages."""

    def __init__(self, pages: Pages, config: FrontendConfig, host: Host, **times_s: float) -> None:
        """`times_s` are the time limits of Edge."""
        super().__init__(config, host, **times_s)
        self.pages = pages

    def begin(self, line: Line, request: Request) -> None:
        """As `Edge.begin`."""
        page = self.pages.at_once(request.method, request.path)
        if page is not None:
            line.answer(page)
        else:
            line.later(self.pages.metrics)


class PublishEdge(PagesEdge):
    """The edge in front of a frontend."""

    def __init__(self, frontend: Frontend, host: Host, *, unread_s: float = UNREAD_S) -> None:
        """`unread_s` is that of Edge."""
        config = frontend.config
        silence_s = max(0.0, (config.read_timeout_ms - config.idle_timeout_ms) / 1_000)
        super().__init__(frontend.pages, config, host, unread_s=unread_s, silence_s=silence_s)
        self.gateway = frontend.gateway
        self.batches = frontend.batches

    @property
    def is_leaving(self) -> bool:
        """As `Edge.is_leaving`."""
        return self.gateway.drain.is_leaving

    def begin(self, line: Line, request: Request) -> None:
        """As `Edge.begin`."""
        security = self.gateway.security
        if request.is_page:
            super().begin(line, request)
        elif security is None:
            self._admit(line, request, request.head)
        else:
            self._identify(line, request, security)

    def _identify(self, line: Line, request: Request, security: PublishSecurity) -> None:
        head = Head(request.pairs, request.fields, line.certificate)
        admit = partial(self._admit, line, request, head)
        if security.asks(request.topic):
            line.later(partial(security.identify, request.topic, head), admit)
        else:
            admit()

    def _admit(self, line: Line, request: Request, head: Head) -> None:
        if request.is_batch:
            batch = self.batches.begin(request.topic, request.key, head, line, self)
            if isinstance(batch, Answer):
                line.answer(batch, is_of_publish=True)
            else:
                line.take_body(batch)
            return
        gateway = self.gateway
        admitted = gateway.admit(
            request.topic, request.expected_bytes, request.key, head, line.settled
        )
        if isinstance(admitted, Answer):
            line.answer(admitted, is_of_publish=True)
            return
        body = line.owe(admitted)
        if body is not None:
            gateway.hand_over(admitted, body)
        else:
            line.take_body(MessageBody(gateway, admitted))

    def rendered(self, pending: Pending, *, closes: bool) -> bytes:
        """As `Edge.rendered`; the common case is a stored message."""
        if type(pending.outcome) is not Stored or pending.route.topic.is_in_memory:
            return super().rendered(pending, closes=closes)
        return self.renderer.stored(pending.id, closes=closes)


class MessageBody(Body):
    """The body of one message, received in pieces."""

    owes_answer = True
    __slots__ = ("_gateway", "_parts", "_size_bytes", "pending")

    def __init__(self, gateway: Gateway, pending: Pending) -> None:
        self._gateway = gateway
        self.pending = pending
        self._parts: list[bytes] = []
        self._size_bytes = 0

    @property
    def has_begun(self) -> bool:
        """True when the first byte has arrived."""
        return bool(self._parts)

    def data(self, piece: bytes) -> None:
        """Take a piece of it; the publish is refused if it is too long."""
        if piece:
            self._parts.append(piece)
            self._size_bytes += len(piece)
            bytes_max = self._gateway.body_bytes_max
            if self._size_bytes > bytes_max:
                size = f"{self._size_bytes} bytes or more"
                self.pending.settle(too_long_for_server(size, bytes_max))

    def end(self) -> None:
        """Hand the complete message over to its topic's producer."""
        parts = self._parts
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        self._gateway.hand_over(self.pending, body)

    def gone(self) -> None:
        """Settle the publish as abandoned: the rest of the body will not come."""
        self.pending.settle(Abandoned())
