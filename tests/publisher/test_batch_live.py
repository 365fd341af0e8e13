"""A batch through real sockets: streamed both ways, held back, never torn."""

import contextlib
import json
import socket
import ssl
import time  # noqa: TID251 -- real processes take real time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import trustme

from tests.publisher.frontend_process import Process

pytestmark = pytest.mark.live

HEAD = (
    b"POST /topics/shop.orders/batch HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


@pytest.fixture(scope="module")
def frontend() -> Iterator[Process]:
    with Process(
        max_publish_request_duration_ms=5_000,
        batch_answer_bytes_max=100_000,
        batch_idle_timeout_ms=3_000,
    ) as process:
        yield process


def url(frontend: Process, topic: str = "shop.orders") -> str:
    return f"{frontend.url}/topics/{topic}/batch"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def connect(frontend: Process) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", frontend.port), timeout=10)
    connection.sendall(HEAD)
    return connection


def test_over_tls_a_batch_that_is_sent_whole_is_answered_to_its_end(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    certificate.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    context = ssl.create_default_context()
    authority.configure_trust(context)
    tls = {
        "certificate_file": str(tmp_path / "cert.pem"),
        "key_file": str(tmp_path / "key.pem"),
        "port": 0,
    }
    with (
        Process(tls=tls, max_publish_request_duration_ms=5_000) as frontend,
        httpx.Client(verify=context, timeout=10) as client,
    ):
        answer = client.post(
            f"https://127.0.0.1:{frontend.tls_port}/topics/shop.orders/batch",
            content=b'{"n":1}\n' * 5_000,
            headers={"Content-Type": "application/x-ndjson"},
        )
    assert answer.http_version == "HTTP/1.1"
    assert [json.loads(line)["status"] for line in answer.text.splitlines()] == [201] * 5_000


def test_a_client_that_reads_nothing_is_not_read_for_ever(frontend: Process) -> None:
    block = chunk(b"1\n" * 5_000)
    with connect(frontend) as connection:
        connection.settimeout(1.0)
        sent = 0
        with pytest.raises(TimeoutError):
            # The kernel's own buffers take some megabytes of answers before anybody is held back.
            while sent < 200_000:
                connection.sendall(block)
                sent += 1
        stuck_at = sent
        assert stuck_at < 200_000


def test_a_client_that_reads_nothing_does_not_keep_the_node_from_ending() -> None:
    with Process(
        batch_idle_timeout_ms=60_000,
        graceful_shutdown_drain_ms=500,
    ) as process:
        connection = connect(process)
        connection.settimeout(2.0)
        block = chunk(b"1\n" * 5_000)
        with contextlib.suppress(TimeoutError, ConnectionError):
            for _ in range(600):
                connection.sendall(block)
        process.process.terminate()
        # The pause, the drain, twice the server's grace, and some for a loaded machine.
        assert process.process.wait(timeout=15) == 0
        connection.close()


def test_a_client_that_leaves_costs_nobody_else_anything(frontend: Process) -> None:
    for _ in range(100):
        connection = connect(frontend)
        connection.sendall(chunk(b"1\n" * 100 + b"torn"))
        connection.close()
    deadline_s = time.monotonic() + 5
    while (
        "hermes_frontend_batch_streams 0" not in httpx.get(f"{frontend.url}/status/prometheus").text
    ):
        assert time.monotonic() < deadline_s, "streams of clients that have left stay open"
        time.sleep(0.1)
    answer = httpx.post(
        url(frontend), content=b"1\n" * 10, headers={"Content-Type": "application/x-ndjson"}
    )
    assert answer.text.count('"status":201') == 10
