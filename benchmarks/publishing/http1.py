"""Publishing over HTTP/1.1: one request at a time on each connection, headers built once."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import httptools

from publishing.messages import TOPIC
from publishing.wire import Connection, Sink, bad_status

_NOTHING: Counter[str] = Counter()


class Http1Connection(Connection):
    """A connection with one message under way at a time."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._parser = httptools.HttpResponseParser(self)
        self._due_s: float | None = None

    @staticmethod
    def requests(bodies: Sequence[bytes], _chunk: int, /) -> list[bytes]:
        """Head and body of each message."""
        return [
            b"POST /topics/%b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (TOPIC.encode(), len(body), body)
            for body in bodies
        ]

    def connection_made(self, transport: Any) -> None:
        """Send the first message."""
        super().connection_made(transport)
        self.sink.ready(self)

    def send(self, request: bytes, due_s: float) -> None:
        """Send one message."""
        self._due_s = due_s
        self.transport.write(request)

    def under_way(self) -> list[tuple[float, int]]:
        """The messages under way: one or none."""
        due_s, self._due_s = self._due_s, None
        return [] if due_s is None else [(due_s, 1)]

    def data_received(self, data: bytes) -> None:
        """Parse what came."""
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        """The answer is complete; the parser continues with the next one."""
        due_s, self._due_s = self._due_s, None
        assert due_s is not None, "an answer without a request"
        status = self._parser.get_status_code()
        if status == 201:
            self.sink.answered(due_s, 1, _NOTHING)
        else:
            self.sink.answered(due_s, 0, bad_status(status))
        if self._parser.should_keep_alive():
            self.sink.ready(self)
        else:
            self.transport.close()
