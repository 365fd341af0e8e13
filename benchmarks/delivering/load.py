"""Publishes at a fixed rate; each message has its number and the time at which it was due."""

from collections.abc import Iterator
from itertools import count

from delivering.node import DeliveringNode
from publishing.http1 import Http1Connection
from publishing.load import OpenLoad, Target
from publishing.messages import made_up
from publishing.wire import Sink

_CONNECTIONS = 64


class _NumberedConnection(Http1Connection):
    """Builds each request when it is sent."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        assert isinstance(sink, NumberedLoad)
        self._load = sink
        self._number = -1

    def send(self, request: bytes, due_s: float) -> None:
        """`request` is the message's number."""
        self._number = int(request)
        topics = self._load.topics
        body = b'{"n": %b, "at": %.6f}' % (request, due_s)
        super().send(
            b"POST /topics/%b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (topics[self._number % len(topics)], len(body), body),
            due_s,
        )

    def on_message_complete(self) -> None:
        """Remember acknowledged messages."""
        if self._parser.get_status_code() == 201:
            self._load.numbers.append(self._number)
        super().on_message_complete()


class NumberedLoad(OpenLoad):
    """An open loop. `numbers` are the acknowledged messages."""

    def __init__(
        self,
        node: DeliveringNode,
        topics: tuple[str, ...],
        rate_per_s: float,
        seconds: float,
        first: int = 0,
    ) -> None:
        """`topics` are used in turn by number; numbers begin at `first`."""
        target = Target(node.publish_port, node.process.pid, "http1", made_up(100), 1)
        super().__init__(target, _CONNECTIONS, seconds, rate_per_s, "poisson")
        self._class = _NumberedConnection
        self._requests: Iterator[bytes] = (b"%d" % number for number in count(first))
        self.topics = tuple(topic.encode() for topic in topics)
        self.numbers: list[int] = []
