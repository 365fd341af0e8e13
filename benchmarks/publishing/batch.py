"""Batch publishing: NDJSON streamed in chunks, one answer line for each message, in order."""

import json
from collections import Counter, deque
from collections.abc import Sequence
from itertools import cycle, islice
from typing import Any

import httptools

from publishing.messages import TOPIC
from publishing.wire import Connection, Outstanding, Sink

BATCH_MESSAGES = 50_000
"""Messages of one request; the next request follows its last answer."""
WINDOW_MESSAGES = 5_000
"""Maximum number of unanswered messages on one connection."""

_HEAD = (
    b"POST /topics/%b/batch HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
) % TOPIC.encode()
_END = b"0\r\n\r\n"
_GOOD = b'"status":201'
_NOTHING: Counter[str] = Counter()


class BatchConnection(Connection):
    """Keeps a window of messages under way, in chunks; the last chunk of a request ends it."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._parser = httptools.HttpResponseParser(self)
        self._outstanding = Outstanding()
        self._sent = 0
        self._is_ending = False
        self._withheld = 0
        self._held: deque[tuple[bytes, float]] = deque()
        self._tail = b""

    @staticmethod
    def requests(bodies: Sequence[bytes], chunk: int, /) -> list[bytes]:
        """Chunks of `chunk` messages, as many as there are different bodies, at most 16."""
        bodies_in_turn = cycle(bodies)
        chunks = []
        for _ in range(min(len(bodies), 16)):
            lines = b"".join(body + b"\n" for body in islice(bodies_in_turn, chunk))
            chunks.append(b"%x\r\n%b\r\n" % (len(lines), lines))
        return chunks

    def connection_made(self, transport: Any) -> None:
        """Send the first chunks."""
        super().connection_made(transport)
        for _ in range(max(1, WINDOW_MESSAGES // self.messages_each)):
            self.sink.ready(self)

    def send(self, request: bytes, due_s: float) -> None:
        """Send a chunk; the first one of a request with its head, the last with its end."""
        if self._is_ending:
            self._held.append((request, due_s))
            return
        if self._sent == 0:
            request = _HEAD + request
        self._sent += self.messages_each
        if self._sent + self.messages_each > BATCH_MESSAGES:
            request += _END
            self._is_ending = True
        self._outstanding.add(due_s, self.messages_each)
        self.transport.write(request)

    def under_way(self) -> list[tuple[float, int]]:
        """Messages without an answer line, and those that wait for the next request."""
        held = [(due_s, self.messages_each) for _, due_s in self._held]
        self._held.clear()
        return self._outstanding.take_all() + held

    def data_received(self, data: bytes) -> None:
        """Parse what came."""
        self._parser.feed_data(data)

    def on_body(self, data: bytes) -> None:
        """Count answer lines, which may come in parts."""
        if self._parser.get_status_code() != 200:
            return
        data = self._tail + data if self._tail else data
        end = data.rfind(b"\n") + 1
        lines, self._tail = data[:end], data[end:]
        count, good = lines.count(b"\n"), lines.count(_GOOD)
        if good == count:
            self._account(count, _NOTHING)
        else:
            for line in lines.splitlines():
                status = json.loads(line)["status"]
                self._account(1, _NOTHING if status == 201 else Counter({str(status): 1}))

    def on_message_complete(self) -> None:
        """The request is completely answered."""
        status = self._parser.get_status_code()
        unanswered = self._outstanding.take_all()
        cause = "no answer line" if status == 200 else str(status)
        for due_s, count in unanswered:
            self.sink.answered(due_s, 0, Counter({cause: count}))
        if status != 200 or unanswered or not self._parser.should_keep_alive():
            self.transport.close()
            return
        self._sent, self._is_ending = 0, False
        held, self._held = self._held, deque()
        for request, due_s in held:
            self.send(request, due_s)
        withheld, self._withheld = self._withheld, 0
        for _ in range(withheld):
            self.sink.ready(self)

    def _account(self, count: int, bad: Counter[str]) -> None:
        while count:
            due_s, taken, is_used_up = self._outstanding.take(count)
            count -= taken
            self.sink.answered(due_s, 0 if bad else taken, bad)
            if not is_used_up:
                continue
            # The window must not be refilled while the end of this request is awaited.
            if self._is_ending:
                self._withheld += 1
            else:
                self.sink.ready(self)
