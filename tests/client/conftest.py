"""A whole node with real sockets in this process, on a memory log, shared by a module."""

import itertools
import threading
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue

import anyio
import httpx
import pytest
import trio

from hermes_actors import config
from hermes_actors.cli.nodes.serving import environment_of
from hermes_actors.listeners import serve_node
from hermes_actors.log.backends import NodeLogs
from hermes_actors.log.memory import MemoryLog
from hermes_actors.runtime import guest
from hermes_actors.runtime.clock import SystemClock
from hermes_actors.telemetry.metrics import Metrics
from hermes_chaos.wanted import subscription_body, topic_body


class Broker:
    """A running node: `publish` and `management` are its URLs."""

    def __init__(self, addresses, client):
        self.publish, self.management = addresses.publish, addresses.management
        self._numbers = itertools.count(1)
        self._client = client
        self.post("/groups", {"groupName": "shop"})

    def topic(self, name="", **fields):
        """Create a topic that publishers can use at once; return its name."""
        name = name or f"shop.topic{next(self._numbers)}"
        self.post("/topics", topic_body(name, **fields))
        path = f"{self.publish}/topics/{name}/batch"
        lines = {"Content-Type": "application/x-ndjson"}
        while httpx.post(path, headers=lines).is_error:
            pass
        return name

    def subscription(self, topic, name, endpoint=None, **fields):
        """Create a subscription; without an endpoint it is pulled."""
        more = {} if endpoint else {"deliveryType": "PULL"}
        body = subscription_body(topic, name, endpoint, **more, **fields)
        self.post(f"/topics/{topic}/subscriptions", body)

    def post(self, path, body):
        answer = self._client.post(f"{self.management}{path}", json=body)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None


VARIABLES = {
    "HERMES_FRONTEND_PORT": "0",
    "HERMES_FRONTEND_IDLE_TIMEOUT_MS": "20000",
    "HERMES_FRONTEND_LONG_IDLE_TIMEOUT_MS": "20000",
    "HERMES_FRONTEND_MAX_PUBLISH_REQUEST_DURATION_MS": "20000",
    "HERMES_FRONTEND_GRACEFUL_SHUTDOWN_INITIAL_WAIT_MS": "0",
    "HERMES_MANAGEMENT_PORT": "0",
    "HERMES_MANAGEMENT_TOPIC_PARTITIONS": "2",
    "HERMES_CONSUMERS_ENDPOINTS_ALLOW_LOOPBACK": "true",
}
"""Free ports, and time limits that a busy machine does not reach."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    # Not for longer: a second loop in the process would draw from the scheduler's randomness, on
    # which the simulation's histories depend.
    spool = {"HERMES_SPOOL_DIRECTORY": str(tmp_path_factory.mktemp("spool"))}
    settings, ready = config.load(None, VARIABLES | spool), Queue()

    async def main():
        stop = trio.Event()
        logs = NodeLogs(MemoryLog(settings.dc, SystemClock()), {}, Metrics("x"), str, str)
        async with trio.open_nursery() as nursery:
            environment = environment_of(settings, logs)
            addresses = await nursery.start(serve_node, settings, environment, stop)
            ready.put((addresses, stop, trio.lowlevel.current_trio_token()))

    thread = threading.Thread(target=guest.run, args=(main,), daemon=True)
    thread.start()
    addresses, stop, token = ready.get(timeout=60)
    with httpx.Client(timeout=30) as client:
        yield Broker(addresses, client)
    token.run_sync_soon(stop.set)
    thread.join(timeout=60)


@pytest.fixture(params=["asyncio", "trio"])
def run(request):
    """Runs an async function on asyncio, then on trio."""
    return partial(anyio.run, backend=request.param)


@contextmanager
def scripted(*answers, acks=(), tls=None):
    """A server that gives these answers, in order: status, headers and body. A status of 0 closes
    the connection; a body that is shorter than its Content-Length is cut. Yields its URL and the
    requests: headers and body. With `acks`, these are the answers of all calls but pull, which may
    come at any time between them.
    """
    left, requests = list(answers), []
    acks_left = list(acks)

    class Scripted(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            requests.append((dict(self.headers), body))
            is_ack = acks and not self.path.endswith("/pull")
            status, headers, answer = (acks_left if is_ack else left).pop(0)
            self.close_connection = True
            if status:
                self.send_response(status)
                for name, value in ({"Content-Length": str(len(answer))} | headers).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Scripted) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        scheme = "http" if tls is None else "https"
        try:
            yield f"{scheme}://127.0.0.1:{server.server_port}", requests
        finally:
            server.shutdown()
            thread.join()
