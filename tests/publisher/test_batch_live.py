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


def read_until(connection: socket.socket, mark: bytes) -> bytes:
    received = b""
    while mark not in received:
        piece = connection.recv(65_536)
        assert piece, f"closed after {received[-200:]!r}"
        received += piece
    return received


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


def test_answers_come_while_the_body_does_and_the_connection_is_used_again(
    frontend: Process,
) -> None:
    with connect(frontend) as connection:
        connection.sendall(chunk(b"1\n"))
        assert b'"status":201' in read_until(connection, b'"}\n')
        connection.sendall(chunk(b"2\n"))
        assert b'"status":201' in read_until(connection, b'"}\n')
        connection.sendall(b"0\r\n\r\n")
        read_until(connection, b"0\r\n\r\n")
        connection.sendall(HEAD + chunk(b"3\n") + b"0\r\n\r\n")
        assert read_until(connection, b"0\r\n\r\n").count(b'"status":201') == 1


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


def test_more_answers_than_may_be_owed_come_as_they_are_read() -> None:
    bytes_max = 8_192
    with (
        Process(
            batch_answer_bytes_max=bytes_max,
            idle_timeout_ms=5_000,
            long_idle_timeout_ms=5_000,
            max_publish_request_duration_ms=5_000,
        ) as process,
        connect(process) as connection,
    ):
        for _ in range(100):
            connection.sendall(chunk(b"1\n" * 100))
        connection.sendall(b"0\r\n\r\n")
        received = read_until(connection, b"0\r\n\r\n")
        lines = [json.loads(line) for line in received.splitlines() if line.startswith(b"{")]
        assert [line["status"] for line in lines] == [201] * 10_000


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


def test_an_array_that_is_too_long_is_answered_though_the_client_goes_on(frontend: Process) -> None:
    with connect(frontend) as connection:
        connection.close()
    with socket.create_connection(("127.0.0.1", frontend.port), timeout=10) as connection:
        connection.sendall(HEAD.replace(b"application/x-ndjson", b"application/json"))
        for _ in range(22):
            connection.sendall(chunk(b"1" * 100_000))
        for _ in range(50):
            connection.sendall(chunk(b"x" * 1_000))
        assert b"frontend.body_bytes_max" in read_until(connection, b"VALIDATION_ERROR")


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
