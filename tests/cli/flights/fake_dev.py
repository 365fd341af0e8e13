"""A stand-in for `hermes dev`: two datacentres in one process that accept, keep and push messages.

    python fake_dev.py MODE --json --publish-port 0 --management-port 0 --data DIR

MODE is `sound`, or a fault: `loses` (one message in fifty is never pushed), `alters` (its body is
changed), `doubles` (every push is made twice).
"""

import json
import sys
from contextlib import AsyncExitStack

import trio

from hermes_actors.cli.connection.poster import header_lines, open_poster, route_to
from hermes_actors.publisher.answers import Answer
from hermes_actors.publisher.edges.endpoint import EndpointServer
from hermes_actors.runtime import guest
from hermes_actors.runtime.clock import IdSource
from hermes_actors.runtime.signals import stop_on_signal

MODE = sys.argv[1]
PUSHES_MAX = 32


class Shared:
    """What both datacentres share: the subscriptions, by name."""

    def __init__(self):
        self.endpoints = {}


class Dc:
    """One datacentre; it pushes what was published to it."""

    def __init__(self, shared):
        self.shared = shared
        self.ids = IdSource()
        self.stored = []
        self.to_push, self.pushes = trio.open_memory_channel(1_000_000)

    def publish(self, request, message, reply):
        message_id = self.ids.message_id()
        self.stored.append(message_id)
        number = len(self.stored)
        for name in self.shared.endpoints:
            if MODE == "loses" and number % 50 == 0:
                continue
            body = message.replace(b"2013", b"2014") if MODE == "alters" else message
            for _ in range(2 if MODE == "doubles" else 1):
                self.to_push.send_nowait((name, message_id, body))
        reply(Answer(201, message_id), 0)

    def manage(self, request, body, reply):
        if request.method == "POST" and request.path.endswith("/subscriptions"):
            subscription = json.loads(body)
            self.shared.endpoints[subscription["name"]] = subscription["endpoint"]
        if request.method == "POST":
            reply(Answer(201), 0)
        elif request.path.endswith("/messages"):
            reply(Answer(200, body=b"{}\n" * len(self.stored)), 0)
        else:
            reply(Answer(200, body=b'"ACTIVE"'), 0)

    async def push_all(self, poster):
        async for name, message_id, body in self.pushes:
            route = route_to(self.shared.endpoints[name], "/")
            for retry in range(5):
                headers = [("Hermes-Message-Id", message_id), ("Hermes-Retry-Count", str(retry))]
                if (await poster.post(route, header_lines(headers), body, 10.0)).status == 200:
                    break


async def listen(serving, respond):
    server = EndpointServer(respond)
    await serving.enter_async_context(server.serving(0))
    return server.url.removesuffix("/")


async def main():
    shared = Shared()
    ready = []
    async with (
        AsyncExitStack() as serving,
        open_poster(PUSHES_MAX) as poster,
        trio.open_nursery() as nursery,
    ):
        await nursery.start(stop_on_signal, nursery.cancel_scope.cancel)
        for name in ("dc1", "dc2"):
            dc = Dc(shared)
            publish = await listen(serving, dc.publish)
            management = await listen(serving, dc.manage)
            ready.append({"dc": name, "publish": publish, "management": management})
            for _ in range(PUSHES_MAX):
                nursery.start_soon(dc.push_all, poster)
        sys.stdout.write(json.dumps({"ready": True, "dcs": ready, "data": sys.argv[-1]}) + "\n")
        sys.stdout.flush()
        await trio.sleep_forever()


if __name__ == "__main__":
    guest.run(main)
