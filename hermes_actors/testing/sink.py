"""The endpoint of the kit's subscriptions: records each push, and answers it or passes it on."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx


@dataclass(frozen=True)
class Delivery:
    """A push to a subscription, and the status that answered it."""

    topic: str
    subscription: str
    body: bytes
    headers: httpx.Headers
    status: int

    @property
    def json(self) -> Any:
        """The decoded body; a list if the subscription has batches."""
        return json.loads(self.body)


class Sink:
    """What one test has received. `changed` is notified of each delivery."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.deliveries: list[Delivery] = []
        self.services: dict[tuple[str, str], str] = {}
        self.failures: dict[str, list[int]] = {}
        self.changed = threading.Condition()

    def take(self, path: str, headers: httpx.Headers, body: bytes) -> httpx.Response:
        """Record a push to `/topic/subscription`, and return the answer."""
        _, topic, name = path.split("/")
        with self.changed:
            failures = self.failures.get(topic)
            answer = httpx.Response(failures.pop(0) if failures else 200)
        if answer.is_success and self.services[topic, name]:
            answer = _passed_on(self.services[topic, name], headers, body)
        with self.changed:
            self.deliveries.append(Delivery(topic, name, body, headers, answer.status_code))
            self.changed.notify_all()
        return answer


def _passed_on(service: str, headers: httpx.Headers, body: bytes) -> httpx.Response:
    kept = [each for each in headers.multi_items() if each[0] not in ("host", "connection")]
    try:
        return httpx.post(service, headers=kept, content=body, timeout=30, trust_env=False)
    except httpx.TransportError as error:
        return httpx.Response(502, text=f"{service}: {error}")


@contextmanager
def open_sink() -> Iterator[Sink]:
    """Receive pushes in threads during the block."""

    class Pushes(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = sink.take(self.path, httpx.Headers(self.headers.items()), body)
            self.send_response(answer.status_code)
            if "Retry-After" in answer.headers:
                self.send_header("Retry-After", answer.headers["Retry-After"])
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Pushes) as server:
        server.daemon_threads = True
        sink = Sink(f"http://127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield sink
        finally:
            server.shutdown()
