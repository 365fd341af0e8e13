"""A small HTTP/1.1 client connection on trio: one request at a time, kept alive, bounded.

For publishing many messages: a request costs it a tenth of what a general client takes.
"""

import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import httptools
import trio

from hermes_actors.cli.command_line.credentials import TLS_SETTINGS
from hermes_actors.runtime.network_causes import not_http_cause, tls_cause

_RECEIVE_BYTES = 65_536
_SENT_AT_ONCE_BYTES_MAX = 65_536


@dataclass(frozen=True, slots=True)
class Origin:
    """Where requests go to: scheme, host, port, and the path that comes before theirs."""

    tls: bool
    host: str
    port: int
    base_path: str

    @classmethod
    def parse(cls, url: str) -> "Origin":
        """From an http(s) URL that has been checked."""
        parts = urlsplit(url)
        tls = parts.scheme == "https"
        return cls(
            tls, parts.hostname or "", parts.port or (443 if tls else 80), parts.path.rstrip("/")
        )

    @property
    def host_header(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


class CannotConnect(Exception):
    """Nothing was sent: the connection could not be made."""


class ConnectionLost(Exception):
    """The connection ended, or broke the protocol, before the answer: the outcome is unknown."""


@dataclass(slots=True)
class Answer:
    """A complete answer; header names in lower case."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes


class AnswerReader:
    """Bytes in, answers out; no I/O. Raises ConnectionLost for what is not HTTP."""

    def __init__(self, *, body_bytes_max: int = 1_048_576) -> None:
        self._body_bytes_max = body_bytes_max
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._done: Answer | None = None
        self.keeps_alive = True

    def feed(self, data: bytes) -> Answer | None:
        """The answer that these bytes complete, if they do."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise ConnectionLost(not_http_cause(data, str(error))) from error
        done = self._done
        if done is not None:
            keeps_alive = self.keeps_alive
            # A parser holds on to little, and a new one cannot carry anything over.
            self._begin()
            self.keeps_alive = keeps_alive
        return done

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, called by the parser."""
        self._headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        """A piece of the body, called by the parser."""
        self._body_bytes += len(body)
        if self._body_bytes > self._body_bytes_max:
            raise ConnectionLost("the answer is too long")
        self._body.append(body)

    def on_message_complete(self) -> None:
        """The answer is whole, called by the parser. A 1xx is only an announcement."""
        status = int(self._parser.get_status_code())
        if 100 <= status < 200:
            self._headers, self._body = {}, []
            return
        self.keeps_alive = bool(self._parser.should_keep_alive())
        self._done = Answer(status, self._headers, b"".join(self._body))


class Connection:
    """One connection to one origin, made when first needed and made again after it ended."""

    def __init__(
        self,
        origin: Origin,
        *,
        connect_timeout_s: float = 5.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._origin = origin
        self._tls = tls
        self._connect_timeout_s = connect_timeout_s
        self._stream: trio.abc.Stream | None = None
        self._reader = AnswerReader()

    async def post(
        self, path: str, headers: Sequence[tuple[str, str]], body: bytes, timeout_s: float
    ) -> Answer:
        """Send one POST and wait for its answer.

        Raises CannotConnect, ConnectionLost, or trio.TooSlowError (outcome unknown as well).
        """
        if self._stream is None:
            self._stream = await self._connect()
        self._reader.keeps_alive = False
        try:
            with trio.fail_after(timeout_s):
                request = self._head(path, headers, len(body)) + body
                if len(request) > _SENT_AT_ONCE_BYTES_MAX:
                    return await self._exchange(self._stream, request)
                await self._stream.send_all(request)
                return await self._answer(self._stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            why = tls_cause(error, TLS_SETTINGS)
            if not why and self._origin.tls:
                # Who wants a certificate and gets none may hang up before he has said so.
                why = f"{error}; it may want a client certificate: see {TLS_SETTINGS.certificate}"
            raise ConnectionLost(f"the connection broke: {why or error}") from error
        finally:
            # Whatever is left of a request that did not end well must not meet the next one.
            if not self._reader.keeps_alive:
                await self.aclose()

    async def aclose(self) -> None:
        """Close the connection at once; the next request makes a new one."""
        stream, self._stream = self._stream, None
        self._reader = AnswerReader()
        if stream is not None:
            await trio.aclose_forcefully(stream)

    def _head(self, path: str, headers: Sequence[tuple[str, str]], length: int) -> bytes:
        lines = [
            f"POST {self._origin.base_path}{path} HTTP/1.1",
            f"Host: {self._origin.host_header}",
            f"Content-Length: {length}",
        ]
        lines += [f"{name}: {value}" for name, value in headers]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8")

    async def _exchange(self, stream: trio.abc.Stream, request: bytes) -> Answer:
        """Send and listen at the same time: who refuses a large request answers it before its end,
        and takes no more of it.
        """
        answers: list[Answer] = []
        failures: list[Exception] = []
        is_sent = False

        async def listen() -> None:
            try:
                answers.append(await self._answer(stream))
            except (ConnectionLost, trio.BrokenResourceError) as error:
                failures.append(error)
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            # A server that has stopped reading may have answered before.
            with suppress(trio.BrokenResourceError):
                await stream.send_all(request)
                is_sent = True
        if not answers:
            raise failures[0]
        self._reader.keeps_alive = self._reader.keeps_alive and is_sent
        return answers[0]

    async def _answer(self, stream: trio.abc.Stream) -> Answer:
        while True:
            data = await stream.receive_some(_RECEIVE_BYTES)
            if not data:
                raise ConnectionLost(
                    "the server closed the connection without an answer (if this is a TLS port, "
                    "write https://)"
                )
            done = self._reader.feed(bytes(data))
            if done is not None:
                return done

    async def _connect(self) -> trio.abc.Stream:
        origin = self._origin
        try:
            with trio.fail_after(self._connect_timeout_s):
                if not origin.tls:
                    return await trio.open_tcp_stream(origin.host, origin.port)
                stream = await trio.open_ssl_over_tcp_stream(
                    origin.host, origin.port, ssl_context=self._tls
                )
                try:
                    await stream.do_handshake()
                except BaseException:
                    await trio.aclose_forcefully(stream)
                    raise
                return stream
        except trio.TooSlowError as error:
            raise CannotConnect(f"no connection within {self._connect_timeout_s:.0f} s") from error
        # UnicodeError: a host that no name server can be asked for.
        except (OSError, UnicodeError, trio.BrokenResourceError) as error:
            raise CannotConnect(_root_cause(error)) from error


def _root_cause(error: Exception) -> str:
    """The system's own words, which trio puts behind its own."""
    if said := tls_cause(error, TLS_SETTINGS):
        return said
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    return getattr(cause, "strerror", None) or str(cause)
