"""The frontend's listener answers as docs/http-edges.md says, over real sockets."""

import os
import shutil
import signal
import socket
import ssl
import subprocess
import time  # noqa: TID251 -- real processes take real time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import trustme

from tests.publisher.frontend_process import HEAD, Process, status_of

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def frontend() -> Iterator[Process]:
    # Time limits that a loaded machine does not break by itself.
    with Process(idle_timeout_ms=1_000, read_timeout_ms=1_500) as process:
        yield process


def test_a_target_in_absolute_form_is_understood(frontend: Process) -> None:
    head = b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    answer, _ = frontend.raw(
        b"POST http://x/topics/shop.orders" + head + b"Content-Length: 2\r\n\r\n{}"
    )
    assert status_of(answer) == 201
    answer, _ = frontend.raw(b"GET http://x:80/status/health" + head + b"\r\n")
    assert answer.endswith(b"UP")
    answer, _ = frontend.raw(b"GET http://x" + head + b"\r\n")
    assert answer.endswith(b"UP")


def test_many_connections_at_once_are_all_answered(frontend: Process) -> None:
    opened = [socket.create_connection(("127.0.0.1", frontend.port)) for _ in range(300)]
    for connection in opened:
        connection.sendall(HEAD + b"Content-Length: 2\r\n\r\n{}")
    for connection in opened:
        connection.settimeout(10)
        assert status_of(connection.recv(4_096)) == 201
        connection.close()


def test_http2_by_prior_knowledge(frontend: Process) -> None:
    with httpx.Client(http1=False, http2=True) as client:
        answer = client.post(f"{frontend.url}/topics/shop.orders", content=b"{}")
        assert (answer.http_version, answer.status_code) == ("HTTP/2", 201)
        assert answer.headers["hermes-message-id"]
        for size in (2, 100_000):
            # Answered before its body has come; the connection goes on.
            lost = client.post(f"{frontend.url}/topics/shop.nothing", content=bytes(size))
            assert lost.json()["code"] == "TOPIC_NOT_EXISTS"
        streamed = client.post(f"{frontend.url}/topics/shop.orders", content=iter([b"{", b"}"]))
        assert streamed.status_code == 201


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not there")
@pytest.mark.parametrize("body", [["-d", "{}"], ["-X", "POST", "-T", "-"]])
def test_curl_publishes_over_http2_with_and_without_a_length(frontend: Process, body) -> None:
    url = f"{frontend.url}/topics/shop.orders"
    tells = ["-s", "-w", "%{http_version} %{http_code}", "--http2-prior-knowledge"]
    answer = subprocess.run(
        ["curl", *tells, *body, url], input=b"{}", capture_output=True, check=True
    )
    assert answer.stdout == b"2 201"


def tls_of(folder: Path) -> tuple[dict[str, object], ssl.SSLContext]:
    """A frontend's TLS, and what a client needs for it."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    certificate.private_key_pem.write_to_path(str(folder / "key.pem"))
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    tls: dict[str, object] = {
        "certificate_file": str(folder / "cert.pem"),
        "key_file": str(folder / "key.pem"),
        "port": 0,
    }
    return tls, ssl.create_default_context(cafile=str(folder / "ca.pem"))


@pytest.mark.parametrize("tls_version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_http2_over_tls_is_negotiated(tls_version: ssl.TLSVersion, tmp_path: Path) -> None:
    tls, context = tls_of(tmp_path)
    with Process(tls=tls, idle_timeout_ms=500) as frontend:
        url = f"https://127.0.0.1:{frontend.tls_port}/topics/shop.orders"
        context.maximum_version = tls_version
        for is_http2, version in ((True, "HTTP/2"), (False, "HTTP/1.1")):
            with httpx.Client(http2=is_http2, verify=context) as client:
                answer = client.post(url, content=b"{}")
                assert (answer.http_version, answer.status_code) == (version, 201)


def test_connections_are_bounded() -> None:
    request = HEAD + b"Content-Length: 2\r\n\r\n{}"
    with Process(connections_max=5, idle_timeout_ms=1_000) as frontend:
        opened = [socket.create_connection(("127.0.0.1", frontend.port)) for _ in range(5)]
        for connection in opened:
            connection.settimeout(10)
            connection.sendall(request)
            assert status_of(connection.recv(4_096)) == 201
        answer, is_closed = frontend.raw(request, wait_s=0.5)
        assert (answer, is_closed) == (b"", True)
        for connection in opened:
            connection.close()
        time.sleep(0.3)
        answer, _ = frontend.raw(request, wait_s=2)
        assert status_of(answer) == 201


def test_the_keep_alive_header_is_not_sent_on_http2() -> None:
    with Process(keep_alive_header=True, idle_timeout_ms=500) as frontend:
        url = f"{frontend.url}/topics/shop.orders"
        assert httpx.post(url, content=b"{}").headers["keep-alive"] == "timeout=1"
        with httpx.Client(http1=False, http2=True) as client:
            answer = client.post(url, content=b"{}")
            assert answer.status_code == 201
            assert "keep-alive" not in answer.headers


def test_a_stop_is_announced_first_and_loses_nothing() -> None:
    with Process(idle_timeout_ms=500, graceful_shutdown_initial_wait_ms=1_000) as frontend:
        url = f"{frontend.url}/topics/shop.orders"
        assert httpx.post(url, content=b"{}").status_code == 201
        os.kill(frontend.process.pid, signal.SIGTERM)
        deadline_s = time.monotonic() + 5
        while httpx.get(f"{frontend.url}/status/health").status_code != 503:
            assert time.monotonic() < deadline_s
        assert httpx.get(f"{frontend.url}/status/health").text == "SHUTDOWN"
        with httpx.Client() as client:
            answer = client.post(url, content=b"{}")
            assert answer.status_code == 201
            assert answer.headers["connection"] == "close"
            assert client.post(url, content=b"{}").status_code == 201
        assert frontend.process.wait(timeout=20) == 0


@pytest.mark.parametrize("is_tls", [False, True])
def test_a_stop_without_a_wait_closes_no_connection_on_a_request(
    is_tls: bool, tmp_path: Path
) -> None:
    tls, context = tls_of(tmp_path)
    request = HEAD + b"Content-Length: 2\r\n\r\n{}"

    def connect(frontend: Process) -> socket.socket:
        if not is_tls:
            return socket.create_connection(("127.0.0.1", frontend.port), timeout=10)
        plain = socket.create_connection(("127.0.0.1", frontend.tls_port), timeout=10)
        return context.wrap_socket(plain, server_hostname="127.0.0.1")

    with Process(tls=tls, graceful_shutdown_initial_wait_ms=0) as frontend:
        opened = [connect(frontend) for _ in range(20)]
        for connection in opened:
            connection.sendall(request)
            assert status_of(connection.recv(4_096)) == 201
        os.kill(frontend.process.pid, signal.SIGTERM)
        for connection in opened:
            time.sleep(0.005)
            connection.sendall(request)
            answer = connection.recv(4_096)
            assert status_of(answer) in (201, 503)
            connection.close()
        assert frontend.process.wait(timeout=20) == 0


def test_a_taken_port_is_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as taken:
        port = taken.getsockname()[1]
        failed = Process(port=port)
        assert failed.process.wait(timeout=20) == 1
        failed.process.stdout.close()
        assert failed.first_line.startswith(
            f"error: frontend.port: cannot listen on 127.0.0.1 port {port}: another process does"
        )


def test_a_certificate_that_cannot_be_read_is_one_clear_line(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.pem")
    failed = Process(tls={"certificate_file": missing, "key_file": missing, "port": 0})
    assert failed.process.wait(timeout=20) == 1
    failed.process.stdout.close()
    assert missing in failed.first_line


def test_processes_share_a_port_only_when_each_of_them_wants_it() -> None:
    with Process(reuse_port=True) as first, Process(port=first.port, reuse_port=True) as second:
        assert second.port == first.port
        assert httpx.post(f"{first.url}/topics/shop.orders", content=b"{}").status_code == 201
        failed = Process(port=first.port)
        assert failed.process.wait(timeout=20) == 1
        failed.process.stdout.close()
        assert "another process does" in failed.first_line
