"""Sends POSTs with the consumers' HTTP/1.1 sender; callers wait for the answers."""

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
    """No connection could be made, so nothing was sent."""


class NoAnswer(Exception):
    """The connection ended or the timeout passed before the answer: the outcome is unknown."""


@dataclass(frozen=True, slots=True)
class PostAnswer:
    """An answer. A body that is too long is cut off; header names are in lower case."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes


class Poster:
    """Sends POSTs over connections that are kept, and opened again if they have ended."""

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
    """Open a poster with a maximum number of connections to each server. In trio, as a guest.

    `timeout_s` is the timeout of a request; opening a connection may take half of it. A connection
    is closed after `idle_s` without use.
    """
    limits = PoolLimits(
        connections_max=connections_max,
        connections_per_host_max=connections_max,
        response_bytes_max=ANSWER_BYTES_MAX,
        idle_s=idle_s,
        # The caller decides whether to repeat a request without an answer.
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
    """Return the route to a path below a base URL that has been checked."""
    return parse_endpoint(url.rstrip("/") + path, url).resolve(b"")


def header_lines(headers: Sequence[tuple[str, str]]) -> bytes:
    """Encode headers for the wire."""
    return "".join([f"{name}: {value}\r\n" for name, value in headers]).encode()


def _why(outcome: SendOutcome, route: PushRoute) -> str:
    said = outcome.detail or outcome.reason()
    if outcome.failure is not Failure.RESET or "see --" in said:
        return said
    if route.origin.scheme == "https":
        # A server that requires a client certificate may close the connection without saying so.
        return f"{said}; it may want a client certificate: see {TLS_SETTINGS.certificate}"
    return f"{said} (if this is a TLS port, write https://)"
