"""The sender seam: start a push without waiting, get its outcome exactly once."""

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
    MALFORMED = "malformed"  # the bytes received are not HTTP
    OVERLOADED = "overloaded"  # here: too many pushes wait, or no connection was free in time
    TOKENLESS = "no-token"  # here: no OAuth token in time, so nothing was sent
    CLOSED = "closed"  # the sender was closed during the push
    UNRESOLVED = "unresolved"  # no address: a template's field is missing, or the resolver has none
    NACKED = "nacked"  # a client that pulled the message gave it back

    @property
    def is_timeout(self) -> bool:
        """True if the metrics count it as a time-out rather than another error."""
        return self in (Failure.TIMEOUT, Failure.IDLE)

    @property
    def is_local(self) -> bool:
        """True if it says nothing about the endpoint: nothing was sent, or the fault is here."""
        return self in (Failure.OVERLOADED, Failure.TOKENLESS, Failure.CLOSED)


_RETRY_AFTER_CHARACTERS_MAX = 40


class SendOutcome(Struct, frozen=True, gc=False):
    """The outcome of one push: an HTTP status, or a failure (then `status` is 0).

    `retry_after` is the answer's Retry-After as sent, an empty string if there was none.
    `recipients` has the outcome of each push in an attempt at several recipients; the rest sums
    them up. None for a single push. `is_partial`: the sum does not cover all recipients of the
    message. `pause_ms`: the pause that a client asked for when it gave a pulled message back.
    """

    status: int
    retry_after: str = ""
    failure: Failure | None = None
    detail: str = ""
    recipients: "tuple[SendOutcome, ...] | None" = None
    is_partial: bool = False
    pause_ms: int | None = None

    @property
    def is_success(self) -> bool:
        """True for 2xx."""
        return 200 <= self.status < 300

    @property
    def is_answered(self) -> bool:
        """True if every recipient answered."""
        return self.status > 0 and all(each.status for each in self.recipients or ())

    @property
    def is_local(self) -> bool:
        """True if the attempt failed on this side, not at the endpoint."""
        return self.failure is not None and self.failure.is_local

    @property
    def is_pressed(self) -> bool:
        """True for a failure caused by load: no answer, 429 and 502 to 504."""
        return self.failure is not None or self.status in (429, 502, 503, 504)

    @property
    def kind(self) -> str:
        """The status, or the failure if there was no answer."""
        return str(self.status) if self.failure is None else self.failure.value

    def reason(self) -> str:
        """The outcome as one short line for people."""
        if self.failure is None:
            status = f"HTTP {self.status}"
            if self.retry_after.strip("0"):
                # Shows that the endpoint asks for the wait. 0 asks for none.
                status += f" (Retry-After: {self.retry_after[:_RETRY_AFTER_CHARACTERS_MAX]})"
            detail = self.detail
            if not detail and 300 <= self.status < 400:
                detail = (
                    "redirects are not followed; use the address that it leads to as the endpoint"
                )
            return f"{status}: {detail}" if detail else status
        return f"{self.failure.value}: {self.detail}" if self.detail else self.failure.value


class Origin(Struct, frozen=True, cache_hash=True):
    """The target of a connection. Connections are shared within one origin only.

    `address` is the IP address to connect to; an empty string means that the host is looked up.
    """

    scheme: str
    host: str
    port: int
    address: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


class PushRoute(Struct, frozen=True):
    """What all pushes of one subscription to one address have in common. `subscription` is its
    name.

    Subscriptions share no connections, so that a slow subscriber cannot occupy another's. `target`
    is path and query; `start` is the request line and the Host line, ready for HTTP/1.1.
    """

    subscription: str
    origin: Origin
    target: str
    start: bytes


BODY_BYTES_KEPT = 18_432
"""How much of an answer's body is kept for people: the part that is shown, plus the longest secret
that may begin there and must be complete to be recognized and masked.
"""


class Witness:
    """Records the last attempt on the wire of a push that has one.

    `lines` are header lines that a sender added to those of the push (a token). `headers` are the
    answer's, `body` is the beginning of its body, `body_bytes` the length that was read; `is_cut`:
    the body was longer.
    """

    def __init__(self, kept_bytes_max: int = BODY_BYTES_KEPT) -> None:
        """Keeps at most so many bytes of the answer's body."""
        self._kept_bytes_max = kept_bytes_max
        self.lines = b""
        self.begin()

    def begin(self) -> None:
        """Forget an earlier or interim answer, before the next one."""
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""
        self.body_bytes = 0
        self.is_cut = False

    def hear(self, piece: bytes) -> None:
        """Record a piece of the answer's body."""
        self.body_bytes += len(piece)
        if len(self.body) < self._kept_bytes_max:
            self.body += piece[: self._kept_bytes_max - len(self.body)]


class Push(Struct, frozen=True, gc=False):
    """One POST. `lines` are its header lines, ready for HTTP/1.1, each ended by CRLF, without Host,
    Content-Length and other framing. `socket_timeout_ms` 0 means none. A sender in which the push
    had to wait calls `may_begin` right before sending; if that returns False, the outcome is
    NOT_BEGUN. None means always. `witness` records the answer.
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
    """Header lines as pairs, for a client that renders them itself."""
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
    """True if the push may be sent now, after it had to wait."""
    return push.may_begin is None or push.may_begin()


PROBE_TIMEOUT_S = 5.0
"""The longest that a probe takes, and the interval of probes of an endpoint that does
not answer.
"""

Probed = Callable[[Failure | None], None]


class Sender(ABC):
    """Pushes messages. Nothing here ever waits or raises."""

    @abstractmethod
    def send(self, push: Push, done: Done) -> None:
        """Start the push. `done` is called exactly once, later, never inside `send`.

        Also called if the sender is closed; on the loops' thread, from either loop. `done` must not
        wait or raise, because nobody could handle that. Redirects are not followed: a 3xx is an
        outcome.
        """

    def after_outcomes(self, callback: Callable[[], None]) -> None:
        """Call `callback` once all outcomes that have come by now are reported, soon or at once.

        Many answers come in one turn of the loop; a caller that sends more after each turn, and not
        after each answer, decides once for all.
        """
        callback()

    def probe(self, route: PushRoute, done: Probed) -> bool:
        """Check whether an endpoint accepts connections (with TLS if the origin has it).

        False if this sender cannot tell without a push. If True, `done` is called exactly once,
        later, never inside `probe`, after at most PROBE_TIMEOUT_S: with None if a connection was
        made, else with the failure. The sender may keep the connection.
        """
        return False

    @property
    def trouble(self) -> str:
        """Why this sender cannot push now, for people. Empty string if it can."""
        return ""

    def forget(self, subscription: str) -> None:  # noqa: B027
        """End all pushes of the subscription with CLOSED, at once or soon: those waiting for a
        connection or a token, and those in flight, which may still arrive. A sender may finish them
        instead.
        """
