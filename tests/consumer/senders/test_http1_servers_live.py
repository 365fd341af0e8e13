"""The HTTP/1.1 sender against servers that others have written, each in a process or a thread."""

import asyncio  # noqa: TID251 -- the sender's sockets live on the host loop
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trio

from hermes_actors.config import EndpointsConfig
from hermes_actors.consumer.recipients.endpoint import parse_endpoint
from hermes_actors.consumer.senders.http1.pool import PoolLimits
from hermes_actors.consumer.senders.http1.sender import open_http1_sender
from hermes_actors.consumer.senders.sender import Failure, Push, SendOutcome
from hermes_actors.runtime import guest
from hermes_actors.security.address_guard import AddressGuard
from hermes_local.ports import free_ports

pytestmark = pytest.mark.live

LOCAL = AddressGuard(EndpointsConfig(allow_loopback=True))
FOLDER = Path(__file__).parent.parent


def wait_for(port, process):
    for _ in range(400):
        assert process.poll() is None, "the server has ended"
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        threading.Event().wait(0.05)
    raise AssertionError("the server does not listen")


@pytest.fixture(scope="module")
def port():
    (port,) = free_ports(1)
    process = subprocess.Popen(
        [sys.executable, "-m", "hypercorn", "answering_app:app", "--bind", f"127.0.0.1:{port}"],
        cwd=FOLDER,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(port, process)
        yield port
    finally:
        process.terminate()
        process.wait(timeout=20)


def pushes(port, requests, **limits):
    """The outcomes of all pushes at once: (path, body) each; and the sender's statistics."""
    found = []

    async def main():
        event, outcomes = trio.Event(), {}

        def done(number, outcome):
            outcomes[number] = outcome
            if len(outcomes) == len(requests):
                event.set()

        with trio.fail_after(30):
            async with open_http1_sender(PoolLimits(**limits), guard=LOCAL) as sender:
                for number, (path, body) in enumerate(requests):
                    url = f"http://127.0.0.1:{port}/{path}"
                    route = parse_endpoint(url, "lane").resolve(b"")
                    push = Push(route, b"Content-Type: application/json\r\n", body, 10_000)
                    sender.send(push, lambda outcome, number=number: done(number, outcome))
                await event.wait()
                found.append(([outcomes[n] for n in range(len(requests))], sender.statistics()))

        # Transports that were closed report it to the loop once more.
        await guest.call(asyncio.sleep, 0.05)

    guest.run(main)
    return found[0]


def test_each_kind_of_answer_is_understood(port):
    cases = [
        ("echo", b"hello", 200),
        ("echo", b"", 200),
        ("echo", b"x" * 30_000, 200),
        ("chunks", b"hello", 202),
        ("empty", b"hello", 204),
        ("endless", b"hello", 200),
    ]
    outcomes, _ = pushes(port, [case[:2] for case in cases])
    assert [outcome.status for outcome in outcomes] == [case[2] for case in cases]
    assert pushes(port, [("later", b"")])[0] == [SendOutcome(503, "7")]


def test_connections_are_used_again(port):
    requests = [("echo", b"%d" % number) for number in range(80)]
    outcomes, (busy, idle, waiting) = pushes(port, requests, connections_max=4)
    assert {outcome.status for outcome in outcomes} == {200}
    assert (busy, waiting) == (0, 0)
    assert 1 <= idle <= 4


def test_a_long_body_arrives_whole(port):
    outcomes, _ = pushes(port, [("chunks", b"y" * 5_000_000)])
    assert [outcome.status for outcome in outcomes] == [202]


def test_an_answer_before_the_body_was_read_is_that_answer_or_a_reset(port):
    outcomes, _ = pushes(port, [("early", b"z" * 20_000_000)])
    (outcome,) = outcomes
    # A server that closes with unread bytes may take its own answer back, by TCP's rules.
    assert outcome.status == 413 or outcome.failure is Failure.RESET


class Plain(BaseHTTPRequestHandler):
    """Answers 200; the class says in which version."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        if self.path == "/length":
            self.send_header("Content-Length", str(len(body)))
        elif self.protocol_version == "HTTP/1.1":
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments):
        pass


@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.1"])
def test_the_server_of_the_standard_library_is_understood(version):
    plain = type("Versioned", (Plain,), {"protocol_version": version})
    with ThreadingHTTPServer(("127.0.0.1", 0), plain) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            requests = [("length", b"a" * 1_000), ("close", b"b" * 1_000)] * 20
            outcomes, statistics = pushes(server.server_port, requests, connections_max=3)
            assert {outcome.status for outcome in outcomes} == {200}
            assert statistics[0] == statistics[2] == 0
        finally:
            server.shutdown()
            thread.join()


KEEPS = [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"]
CONTINUES_FIRST = [
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 102 Processing\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n",
]
CHUNKS = [
    b"HTTP/1.1 200 OK\r\nServer: nginx\r\nTransfer-Encoding: chunked\r\n",
    b"Connection: keep-alive\r\n\r\n2\r\nok\r\n",
    b"0\r\n\r\n",
]
GOODBYE = b"HTTP/1.1 408 Request Time-out\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize("goodbye", [b"", GOODBYE], ids=["silently", "with a goodbye"])
@pytest.mark.parametrize(
    "pieces", [KEEPS, CONTINUES_FIRST, CHUNKS], ids=["whole", "after interims", "in chunks"]
)
def test_a_raw_server_that_closes_after_some_answers_costs_no_failure(pieces, goodbye):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        served = []

        def serve():
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection, connection.makefile("rb") as reader, suppress(OSError):
                    for _ in range(3):
                        length = 0
                        while (line := reader.readline()) not in (b"\r\n", b""):
                            if line.lower().startswith(b"content-length:"):
                                length = int(line.split(b":")[1])
                        if not line:
                            break
                        served.append(reader.read(length))
                        for piece in pieces:
                            connection.sendall(piece)
                            threading.Event().wait(0.001)
                    connection.sendall(goodbye)
                    # Without reading what came meanwhile, the end would be a reset.
                    connection.shutdown(socket.SHUT_WR)
                    reader.read()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            requests = [("in", b"%d" % number) for number in range(20)]
            outcomes, _ = pushes(listening.getsockname()[1], requests, connections_max=1)
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()
    assert {outcome.status for outcome in outcomes} == {200}
    assert sorted(served) == sorted(b"%d" % number for number in range(20))
