"""A batch request on the bare app."""

import json

import trio

LINES = "application/x-ndjson"
ARRAY = "application/json"
ENVELOPES = "application/vnd.hermes.messages+ndjson"
EVENTS = "application/cloudevents-batch+json"


class Exchange:
    """A batch request on the bare app: what is put in is its body, what comes out its answer."""

    def __init__(self, world, topic="shop.orders", content_type=LINES, **headers) -> None:
        self._world = world
        self._put, self._get = trio.open_memory_channel(1_000)
        self.may_write = trio.Event()
        self.may_write.set()
        self.is_done = trio.Event()
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.is_complete = False
        pairs = {"content-type": content_type} | headers
        self._scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "path": f"/topics/{topic}/batch",
            "headers": [(name.replace("_", "-").encode(), v.encode()) for name, v in pairs.items()],
        }

    @property
    def lines(self):
        return [json.loads(line) for line in self.body.splitlines()]

    @property
    def unread(self) -> int:
        """How many pieces of the body nobody has read."""
        return self._get.statistics().current_buffer_used

    def feed(self, *pieces: bytes) -> None:
        for piece in pieces:
            self._put.send_nowait({"type": "http.request", "body": piece, "more_body": True})

    def end(self) -> None:
        self._put.send_nowait({"type": "http.request", "body": b"", "more_body": False})

    def leave(self) -> None:
        self._put.send_nowait({"type": "http.disconnect"})

    async def run(self) -> None:
        await self._world.app(self._scope, self._get.receive, self._send)
        self.is_done.set()

    async def _send(self, event) -> None:
        await self.may_write.wait()
        if event["type"] == "http.response.start":
            self.status = event["status"]
            self.headers = {k.decode(): v.decode() for k, v in event["headers"]}
        else:
            self.body += event["body"]
            self.is_complete = not event.get("more_body", False)


async def call(world, *pieces: bytes, **options) -> Exchange:
    exchange = Exchange(world, **options)
    exchange.feed(*pieces)
    exchange.end()
    await exchange.run()
    assert exchange.is_complete
    assert world.frontend.tally.in_flight == 0
    assert not len(world.frontend.gateway.batches)
    return exchange
