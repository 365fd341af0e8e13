"""A batch request on a connection without sockets."""

import json

import trio

from tests.publisher.in_process import Answers, chunk, head_of

LINES = "application/x-ndjson"
ARRAY = "application/json"
ENVELOPES = "application/vnd.hermes.messages+ndjson"
EVENTS = "application/cloudevents-batch+json"


class Exchange:
    """A batch request on a connection: feed the body, read the answer."""

    def __init__(self, world, topic="shop.orders", content_type=LINES, **headers) -> None:
        self._line = world.connect()
        self._script: list[bytes | None] = []
        self.is_done = trio.Event()
        self._is_begun = False
        pairs = {"content-type": content_type, "transfer-encoding": "chunked"} | headers
        raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in pairs.items()]
        self._script.append(head_of("POST", f"/topics/{topic}/batch", raw))

    @property
    def _answers(self) -> Answers:
        return Answers(bytes(self._line.answered), self._line.is_closed)

    @property
    def status(self) -> int:
        return self._answers.status

    @property
    def headers(self) -> dict[str, str]:
        return self._answers.header_pairs()

    @property
    def body(self) -> bytes:
        return self._answers.body

    @property
    def is_complete(self) -> bool:
        return self._answers.is_complete

    @property
    def lines(self):
        return [json.loads(line) for line in self.body.splitlines()]

    @property
    def unread(self) -> int:
        """How many pieces of the body the node has not taken from the connection."""
        return len(self._line.unread)

    def stop_reading(self) -> None:
        """Let the client stop reading answers."""
        self._line.may_write = trio.Event()

    def read_on(self) -> None:
        self._line.read_on()

    def feed(self, *pieces: bytes) -> None:
        self._put(*map(chunk, filter(None, pieces)))

    def end(self) -> None:
        self._put(b"0\r\n\r\n")

    def leave(self) -> None:
        self._put(None)

    def _put(self, *pieces: bytes | None) -> None:
        self._script += pieces
        if self._is_begun:
            self._play()

    def _play(self) -> None:
        while self._script:
            piece = self._script.pop(0)
            if piece is None:
                self._line.leave()
            else:
                self._line.send(piece)

    async def run(self) -> None:
        self._is_begun = True
        try:
            self._play()
            while not (self.is_complete or self._line.is_closed):
                await self._line.changed.wait()
        finally:
            self._line.leave()
        self.is_done.set()


async def call(world, *pieces: bytes, **options) -> Exchange:
    exchange = Exchange(world, **options)
    exchange.feed(*pieces)
    exchange.end()
    await exchange.run()
    assert exchange.is_complete
    assert world.frontend.drain.in_flight == 0
    assert not len(world.frontend.batches)
    return exchange
