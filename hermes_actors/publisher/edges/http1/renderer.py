"""Renders answers as the bytes of HTTP/1.1. Pure: no socket, no clock."""

from collections.abc import Sequence
from http import HTTPStatus
from wsgiref.handlers import format_date_time

from hermes_actors.config import FrontendConfig
from hermes_actors.publisher.answers import Answer

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_CLOSE = b"Connection: close\r\n"
_PHRASES = {each.value: each.phrase for each in HTTPStatus}
_LINES = {
    status: f"HTTP/1.1 {status} {_PHRASES.get(status, '')}\r\n".encode()
    for status in range(100, 600)
}


class Renderer:
    """Renders answers with the date of the last `tick`."""

    def __init__(self, config: FrontendConfig) -> None:
        self._keep_alive = b""
        if config.keep_alive_header:
            self._keep_alive = b"Keep-Alive: timeout=%d\r\n" % config.keep_alive_header_timeout_s
        self._date_s = -1
        self.date = ""
        self._date = self._stored = b""

    def tick(self, now_ms: int) -> None:
        """Set the wall-clock time, which becomes the Date of answers."""
        now_s = now_ms // 1_000
        if now_s != self._date_s:
            self._date_s = now_s
            self.date = format_date_time(now_s)
            self._date = f"Date: {self.date}\r\n".encode()
            self._stored = b"%b%bContent-Length: 0\r\nHermes-Message-Id: " % (
                _LINES[201],
                self._date,
            )

    def stored(self, message_id: str, *, closes: bool) -> bytes:
        """The 201 for a stored message."""
        return b"%b%b\r\n%b\r\n" % (
            self._stored,
            message_id.encode(),
            _CLOSE if closes else self._keep_alive,
        )

    def answer(
        self, answer: Answer, *, is_of_publish: bool, closes: bool, is_bare: bool = False
    ) -> bytes:
        """A whole answer; without its body if it `is_bare`. If it is to a publish, the configured
        Keep-Alive header is added.
        """
        keep_alive = self._keep_alive if is_of_publish else b""
        return b"%b%b%b%b\r\n%b" % (
            _LINES[answer.status],
            self._date,
            _lines(answer.fields()),
            _CLOSE if closes else keep_alive,
            b"" if is_bare else answer.body,
        )

    def head(
        self, status: int, fields: Sequence[tuple[bytes, bytes]], *, is_chunked: bool, closes: bool
    ) -> bytes:
        """The head of an answer that is sent in pieces. Without chunks and without a length, the
        end of the connection ends it.
        """
        return b"%b%b%b%b%b\r\n" % (
            _LINES[status],
            self._date,
            _lines(fields),
            b"Transfer-Encoding: chunked\r\n" if is_chunked else b"",
            _CLOSE if closes else self._keep_alive,
        )


def chunk(data: bytes) -> bytes:
    """One chunk of an answer; an empty one ends the body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def _lines(fields: Sequence[tuple[bytes, bytes]]) -> bytes:
    return b"".join([b"%b: %b\r\n" % (name.title(), value) for name, value in fields])
