"""POSTs to servers over the consumers' HTTP/1.1 sender, each waited for by its caller."""

import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio

from hermes_actors.cli.command_line.credentials import TLS_SETTINGS
from hermes_actors.consumer.recipients.endpoint import parse_endpoint
from hermes_actors.consumer.senders.http1.pool import PoolLimits
from hermes_actors.consumer.senders.http1.sender import open_http1_sender
from hermes_actors.consumer.senders.sender import (
    Failure,
    Push,
    PushRoute,
    Sender,
    SendOutcome,
    Witness,
)

ANSWER_BYTES_MAX = 1_048_576
_CONNECT_TIMEOUT_S = 5.0


class CannotConnect(Exception):
    """Nothing was sent: no connection could be made."""


class NoAnswer(Exception):
    """The connection ended, or the time was over, before the answer: the outcome is unknown."""


@dataclass(frozen=True, slots=True)
class PostAnswer:
    """An answer, complete but for the end of a body that is too long; header names in lower
    case.
    """

    status: int
    headers: dict[bytes, bytes]
    body: bytes


class Poster:
    """Connections to servers, kept for the next request and made again when they have ended."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    async def post(
        self, route: PushRoute, lines: bytes, body: bytes, timeout_s: float
    ) -> PostAnswer:
        """Send one POST with these header lines and wait for its answer.

        Raises CannotConnect and NoAnswer.
        """
        witness = Witness(ANSWER_BYTES_MAX)
        ended, outcomes = trio.Event(), list[SendOutcome]()

        def done(outcome: SendOutcome) -> None:
            outcomes.append(outcome)
            ended.set()

        timeout_ms = max(1, round(timeout_s * 1_000))
        self._sender.send(Push(route, lines, body, timeout_ms, witness=witness), done)
        await ended.wait()
        outcome = outcomes[0]
        if outcome.failure is Failure.CONNECT:
            raise CannotConnect(outcome.detail.removeprefix(f"{route.origin}: "))
        if outcome.failure is not None:
            raise NoAnswer(_why(outcome, route))
        headers = {name.lower(): value for name, value in witness.headers}
        return PostAnswer(outcome.status, headers, witness.body)


@asynccontextmanager
async def open_poster(
    connections_max: int,
    *,
    timeout_s: float = 2 * _CONNECT_TIMEOUT_S,
    idle_s: float = 30.0,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Poster]:
    """A poster with so many connections to each server, for a guest of the host loop.

    `timeout_s` is that of its requests, half of which a connection may take to be made. One that
    has not been used for `idle_s` is closed.
    """
    limits = PoolLimits(
        connections_max=connections_max,
        connections_per_host_max=connections_max,
        response_bytes_max=ANSWER_BYTES_MAX,
        idle_s=idle_s,
        # Whether what nobody answered is sent again is the caller's to say.
        repeats_stale=False,
    )
    async with open_http1_sender(
        limits,
        guard=None,
        connect_timeout_s=min(_CONNECT_TIMEOUT_S, timeout_s / 2),
        tls=tls,
        settings=TLS_SETTINGS,
    ) as sender:
        yield Poster(sender)


def route_to(url: str, path: str) -> PushRoute:
    """The route to this path below a base URL that has been checked."""
    return parse_endpoint(url.rstrip("/") + path, url).resolve(b"")


def header_lines(headers: Sequence[tuple[str, str]]) -> bytes:
    """Headers as they are on the wire."""
    return "".join([f"{name}: {value}\r\n" for name, value in headers]).encode()


def _why(outcome: SendOutcome, route: PushRoute) -> str:
    said = outcome.detail or outcome.reason()
    if outcome.failure is not Failure.RESET or "see --" in said:
        return said
    if route.origin.scheme == "https":
        # Who wants a certificate and gets none may hang up before he has said so.
        return f"{said}; it may want a client certificate: see {TLS_SETTINGS.certificate}"
    return f"{said} (if this is a TLS port, write https://)"
