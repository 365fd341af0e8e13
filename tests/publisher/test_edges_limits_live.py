"""What is too large, too slow or too much is ended, over real sockets."""

import socket
import ssl
import time  # noqa: TID251 -- real processes take real time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import trustme

from tests.publisher.frontend_process import HEAD, Process, status_of

pytestmark = pytest.mark.live

BODY = b"Content-Length: 2\r\n\r\n{}"


@pytest.fixture(scope="module")
def frontend() -> Iterator[Process]:
    with Process(
        idle_timeout_ms=1_000,
        body_bytes_max=4_096,
        header_bytes_max=4_096,
        url_bytes_max=200,
        head_timeout_ms=1_000,
        throughput={"type": "fixed", "fixed_max_bytes_per_s": 1_000_000},
    ) as process:
        yield process


def test_a_head_that_trickles_ends_the_connection(frontend: Process) -> None:
    steps: list[bytes | float] = [HEAD]
    for number in range(40):
        steps += [b"X-%d: 1\r\n" % number, 0.05] if number < 17 else [0.05]
    start_s = time.monotonic()
    answer, is_closed = frontend.raw(*steps, wait_s=3)
    assert (answer, is_closed) == (b"", True)
    assert time.monotonic() - start_s < 8


def test_an_idle_connection_has_longer_than_a_head(frontend: Process) -> None:
    with socket.create_connection(("127.0.0.1", frontend.port)) as connection:
        connection.settimeout(5)
        for pause_s in (1.6, 1.6, 0.0):
            connection.sendall(HEAD + BODY)
            assert status_of(connection.recv(4_096)) == 201
            time.sleep(pause_s)
        connection.sendall(HEAD)
        time.sleep(0.2)
        connection.sendall(BODY)
        assert status_of(connection.recv(4_096)) == 201


def test_a_tls_handshake_that_does_not_come_ends_the_connection(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    certificate.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    tls = {
        "certificate_file": str(tmp_path / "cert.pem"),
        "key_file": str(tmp_path / "key.pem"),
        "port": 0,
    }
    with Process(tls=tls, head_timeout_ms=500) as frontend:
        assert frontend.tls_port is not None
        with socket.create_connection(("127.0.0.1", frontend.tls_port)) as connection:
            connection.settimeout(5)
            assert connection.recv(1) == b""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        url = f"https://127.0.0.1:{frontend.tls_port}/topics/shop.orders"
        assert httpx.post(url, content=b"{}", verify=context).status_code == 201


def test_connections_of_one_address_are_bounded() -> None:
    with Process(connections_per_address_max=3, idle_timeout_ms=1_000) as frontend:
        opened = []
        for address in ["127.0.0.1"] * 3 + ["127.0.0.2"]:
            connection = socket.create_connection(
                ("127.0.0.1", frontend.port), source_address=(address, 0)
            )
            connection.settimeout(5)
            connection.sendall(HEAD + BODY)
            assert status_of(connection.recv(4_096)) == 201
            opened.append(connection)
        answer, is_closed = frontend.raw(HEAD + BODY, wait_s=2)
        assert (answer, is_closed) == (b"", True)
        opened.pop(0).close()
        time.sleep(0.3)
        answer, _ = frontend.raw(HEAD + BODY, wait_s=1)
        assert status_of(answer) == 201
        for connection in opened:
            connection.close()
