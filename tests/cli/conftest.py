"""Fakes of both sides of a broker, served over loopback from their own thread."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from typer.testing import CliRunner, Result

from hermes_actors.cli.main import app


@dataclass
class Call:
    """One request that a fake has received."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> object:
        return json.loads(self.body)


@dataclass
class FakeServer:
    """Answers from `answers` by "METHOD path"; a list is used up, except its last answer."""

    url: str = ""
    calls: list[Call] = field(default_factory=list)
    answers: dict[str, list[tuple[int, bytes]]] = field(default_factory=dict)
    headers: dict[int, dict[str, str]] = field(default_factory=dict)
    """Extra headers by status."""

    def on(self, request: str, *answers: tuple[int, object]) -> None:
        self.answers[request] = [
            (status, body if isinstance(body, bytes) else json.dumps(body).encode())
            for status, body in answers
        ]

    def answer(self, call: Call) -> tuple[int, bytes]:
        self.calls.append(call)
        queue = self.answers.get(f"{call.method} {call.path}")
        if not queue:
            return 404, b'{"message":"nothing here","code":"OTHER"}'
        return queue.pop(0) if len(queue) > 1 else queue[0]

    def made(self) -> list[str]:
        return [f"{call.method} {call.path}" for call in self.calls]


@pytest.fixture
def server() -> Iterator[FakeServer]:
    fake = FakeServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one write, else Nagle costs 40 ms a request

        def _take(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            call = Call(self.command, self.path, headers, self.rfile.read(length))
            status, body = fake.answer(call)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Hermes-Message-Id", f"id-{len(fake.calls)}")
            for name, value in fake.headers.get(status, {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_DELETE = _take  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        fake.url = f"http://127.0.0.1:{httpd.server_port}"
        thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
        thread.start()
        yield fake
        httpd.shutdown()
        thread.join()


@pytest.fixture
def hermes(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs a command line with the fake as both servers, and without a certificate file."""
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv("HERMES_MANAGEMENT_URL", server.url)
    monkeypatch.setenv("HERMES_PUBLISH_URL", server.url)

    def run(*args: str, stdin: str | bytes | None = None) -> Result:
        return CliRunner().invoke(
            app, list(args), input=stdin, catch_exceptions=False, prog_name="hermes"
        )

    return run
