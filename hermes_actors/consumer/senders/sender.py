"""The sender seam: hand over one push without waiting, hear its outcome exactly once."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import StrEnum

from msgspec import Struct

from hermes_actors.model.redaction import hidden_bytes, redacted


class Failure(StrEnum):
    """Why a push got no answer."""

    CONNECT = "connect"  # no connection: refused, unreachable, name not found, TLS refused
    FORBIDDEN = "forbidden"  # the endpoint leads to an address that this node may not push to
    TIMEOUT = "timeout"  # no complete answer head within the request's time
    IDLE = "idle"  # the connection was silent for longer than the socket time-out
    RESET = "reset"  # the connection ended before an answer
    MALFORMED = "malformed"  # what came is not HTTP
    OVERLOADED = "overloaded"  # here: too many pushes wait, or no connection was free in time
    TOKENLESS = "no-token"  # here: no OAuth token could be had in time, so nothing was sent
    CLOSED = "closed"  # the sender was closed under the push
    UNRESOLVED = "unresolved"  # the endpoint's template names a field that the message lacks

    @property
    def is_timeout(self) -> bool:
        """True for what the metrics count as a time-out rather than another error."""
        return self in (Failure.TIMEOUT, Failure.IDLE)

    @property
    def is_local(self) -> bool:
        """True for what says nothing of the endpoint: it was sent nothing, or not by its fault."""
        return self in (Failure.OVERLOADED, Failure.TOKENLESS, Failure.CLOSED)


_RETRY_AFTER_CHARACTERS_MAX = 40


class SendOutcome(Struct, frozen=True, gc=False):
    """The outcome of one push: an HTTP status, or a failure (then `status` is 0).

    `retry_after` is the answer's Retry-After as sent, "" when there was none. `recipients` says
    what became of each push of an attempt at several recipients, which the rest sums up; None for
    a single push. `is_partial`: the sum does not speak for all who are to get the message.
    """

    status: int
    retry_after: str = ""
    failure: Failure | None = None
    detail: str = ""
    recipients: "tuple[SendOutcome, ...] | None" = None
    is_partial: bool = False

    @property
    def is_success(self) -> bool:
        """True for 2xx."""
        return 200 <= self.status < 300

    @property
    def is_answered(self) -> bool:
        """True when all who were pushed to have answered."""
        return self.status > 0 and all(each.status for each in self.recipients or ())

    @property
    def is_local(self) -> bool:
        """True when the attempt failed here: no error of the endpoint's."""
        return self.failure is not None and self.failure.is_local

    @property
    def is_pressed(self) -> bool:
        """True for a failure that comes from the load: no answer, 429 and 502 to 504."""
        return self.failure is not None or self.status in (429, 502, 503, 504)

    @property
    def kind(self) -> str:
        """The status, or the failure in place of an answer."""
        return str(self.status) if self.failure is None else self.failure.value

    def reason(self) -> str:
        """Return the outcome as one short line for people."""
        if self.failure is None:
            status = f"HTTP {self.status}"
            if self.retry_after.strip("0"):
                # Else nobody sees that it is the endpoint which asks for the wait. 0 asks for none.
                status += f" (Retry-After: {self.retry_after[:_RETRY_AFTER_CHARACTERS_MAX]})"
            detail = self.detail
            if not detail and 300 <= self.status < 400:
                detail = "redirects are not followed; subscribe the address that it leads to"
            return f"{status}: {detail}" if detail else status
        return f"{self.failure.value}: {self.detail}" if self.detail else self.failure.value


class Origin(Struct, frozen=True, cache_hash=True):
    """Where a connection leads. Connections are shared within one origin only.

    `address` is the IP address to connect to, in place of a look-up; "" to look the host up.
    """

    scheme: str
    host: str
    port: int
    address: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


class PushRoute(Struct, frozen=True):
    """The parts that all pushes of one subscription to one address share. `subscription` is its
    name.

    Senders share nothing but the machine between subscriptions, so that a slow subscriber's pushes
    do not take another's connections. `target` is path and query, `start` the request line and the
    Host line ready for HTTP/1.1.
    """

    subscription: str
    origin: Origin
    target: str
    start: bytes


BODY_BYTES_KEPT = 18_432
"""The most of an answer's body that is kept for people: what is shown of it, and the longest secret
that may begin there and has to be known whole to be left out."""


class Witness:
    """Kept by the senders of a push that has one, of its last attempt on the wire.

    `lines` are the header lines that a sender has added to those of the push (a token). `headers`
    are the answer's, `body` the beginning of its body, `body_bytes` how long that was as far as it
    was read; `is_cut`: it was longer.
    """

    def __init__(self, kept_bytes_max: int = BODY_BYTES_KEPT) -> None:
        """Keep so many bytes of the answer's body at most."""
        self._kept_bytes_max = kept_bytes_max
        self.lines = b""
        self.begin()

    def begin(self) -> None:
        """Forget what an earlier answer said, or an interim one: another is awaited."""
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""
        self.body_bytes = 0
        self.is_cut = False

    def hear(self, piece: bytes) -> None:
        """Take in a piece of the answer's body."""
        self.body_bytes += len(piece)
        if len(self.body) < self._kept_bytes_max:
            self.body += piece[: self._kept_bytes_max - len(self.body)]


class Push(Struct, frozen=True, gc=False):
    """One POST. `lines` are its header lines ready for HTTP/1.1, each ended by CRLF, without Host,
    Content-Length and what else frames a request. `socket_timeout_ms` 0 means none. `may_begin` is
    asked, by a sender in which the push has had to wait, immediately before anything is sent of it;
    when it says no, the outcome is NOT_BEGUN. None: it may. `witness` is told what the
    answer holds.
    """

    route: PushRoute
    lines: bytes
    body: bytes
    request_timeout_ms: int
    socket_timeout_ms: int = 0
    may_begin: Callable[[], bool] | None = None
    witness: Witness | None = None

    def __repr__(self) -> str:
        return redacted(self, lines=hidden_bytes(self.lines), body=hidden_bytes(self.body))


def parse_lines(lines: bytes) -> list[tuple[bytes, bytes]]:
    """Rendered lines as pairs again, for a client that renders on its own."""
    pairs = []
    for line in lines.split(b"\r\n"):
        name, colon, value = line.partition(b": ")
        if colon:
            pairs.append((name, value))
    return pairs


Done = Callable[[SendOutcome], None]

NOT_BEGUN = SendOutcome(0, "", Failure.CLOSED, "nothing was sent: the node may not push now")
"""The outcome of a push that was not allowed to begin."""


def may_begin(push: Push) -> bool:
    """True when the push may be sent now, after it has had to wait."""
    return push.may_begin is None or push.may_begin()


PROBE_TIMEOUT_S = 5.0
"""The longest that a probe takes; so often an endpoint that does not answer is probed."""

Probed = Callable[[Failure | None], None]


class Sender(ABC):
    """Pushes messages. Nothing here ever waits or raises."""

    @abstractmethod
    def send(self, push: Push, done: Done) -> None:
        """Start the push; `done` is called exactly once, later, never from inside `send`.

        It is called also when the sender is closed, on the thread of the loops, from either loop.
        `done` never waits and never raises: who calls it has nobody to tell.
        Redirects are not followed: a 3xx is an outcome like another.
        """

    def probe(self, route: PushRoute, done: Probed) -> bool:
        """Find out whether an endpoint takes connections (with TLS where the origin has it).

        False if this sender cannot tell without a push. True: `done(None)` is called when a
        connection was made, which is kept or closed, else `done` with why not: exactly once, later,
        never from inside `probe`, after PROBE_TIMEOUT_S at the latest.
        """
        return False

    @property
    def trouble(self) -> str:
        """For people: why this sender cannot push anything now; "" when it can."""
        return ""

    def forget(self, subscription: str) -> None:  # noqa: B027
        """End all pushes of the subscription with CLOSED, at once or soon: those that wait for a
        connection or a token, and those that are on their way, which may arrive all the same. A
        sender may go on with them instead.
        """
