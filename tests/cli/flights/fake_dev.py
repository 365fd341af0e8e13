"""A stand-in for `hermes dev`: two DCs in one process that take, keep and push, and no more.

    python fake_dev.py MODE --json --publish-port 0 --management-port 0 --data DIR

MODE is `sound`, or a fault: `loses` (one message in fifty is never pushed), `alters` (its body is
changed), `doubles` (every push is made twice).
"""

import json
import sys

import trio

from hermes_actors.cli.connection.http_client import Connection, Origin
from hermes_actors.cli.connection.http_server import HttpServer, answer
from hermes_actors.runtime.clock import IdSource
from hermes_actors.runtime.signals import stop_on_signal

MODE = sys.argv[1]
PUSHES_MAX = 32


class Shared:
    """What both DCs know: the subscriptions, by name."""

    def __init__(self):
        self.endpoints = {}


class Dc:
    """One DC: what was published here is pushed from here."""

    def __init__(self, shared):
        self.shared = shared
        self.ids = IdSource()
        self.stored = []
        self.to_push, self.pushes = trio.open_memory_channel(1_000_000)

    async def publish(self, request):
        message_id = self.ids.message_id()
        self.stored.append(message_id)
        number = len(self.stored)
        for name in self.shared.endpoints:
            if MODE == "loses" and number % 50 == 0:
                continue
            body = request.body.replace(b"2013", b"2014") if MODE == "alters" else request.body
            for _ in range(2 if MODE == "doubles" else 1):
                self.to_push.send_nowait((name, message_id, body))
        return answer(201, headers=[("Hermes-Message-Id", message_id)])

    async def manage(self, request):
        path = request.path.partition("?")[0]
        if request.method == "POST" and path.endswith("/subscriptions"):
            body = json.loads(request.body)
            self.shared.endpoints[body["name"]] = body["endpoint"]
        if request.method == "POST":
            return answer(201)
        if path.endswith("/messages"):
            return answer(200, b"{}\n" * len(self.stored))
        return answer(200, b'"ACTIVE"')

    async def push_all(self):
        links = {}
        async for name, message_id, body in self.pushes:
            if name not in links:
                links[name] = Connection(Origin.parse(self.shared.endpoints[name]))
            for retry in range(5):
                headers = [("Hermes-Message-Id", message_id), ("Hermes-Retry-Count", str(retry))]
                if (await links[name].post("/", headers, body, 10.0)).status == 200:
                    break


async def listen(nursery, respond):
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    await nursery.start(HttpServer(respond).serve, listeners)
    return f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"


async def main():
    shared = Shared()
    ready = []
    async with trio.open_nursery() as nursery:
        await nursery.start(stop_on_signal, nursery.cancel_scope.cancel)
        for name in ("dc1", "dc2"):
            dc = Dc(shared)
            publish = await listen(nursery, dc.publish)
            management = await listen(nursery, dc.manage)
            ready.append({"dc": name, "publish": publish, "management": management})
            for _ in range(PUSHES_MAX):
                nursery.start_soon(dc.push_all)
        sys.stdout.write(json.dumps({"ready": True, "dcs": ready, "data": sys.argv[-1]}) + "\n")
        sys.stdout.flush()
        await trio.sleep_forever()


if __name__ == "__main__":
    trio.run(main)
