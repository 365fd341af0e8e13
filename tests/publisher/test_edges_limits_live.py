"""What is too large, too slow or too much is ended, over real sockets."""

import json
import socket
import ssl
import time  # noqa: TID251 -- real processes take real time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import trustme

from hermes_actors.model.keyed_id import keyed_id
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


@pytest.mark.parametrize(("size", "status"), [(2_048, 201), (2_049, 400)])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_message_above_its_topics_limit_is_400(
    frontend: Process, size: int, status: int, is_chunked: bool
) -> None:
    content = iter([bytes(size)]) if is_chunked else bytes(size)
    answer = httpx.post(f"{frontend.url}/topics/shop.orders", content=content)
    assert answer.status_code == status
    if status == 400:
        assert answer.json()["code"] == "VALIDATION_ERROR"
        assert "2049 bytes long; topic shop.orders takes at most 2048" in answer.json()["message"]


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_above_the_servers_limit_is_400_and_not_read(
    frontend: Process, is_chunked: bool
) -> None:
    if is_chunked:
        rest = b"Transfer-Encoding: chunked\r\n\r\n2000\r\n" + bytes(0x2000) + b"\r\n"
    else:
        rest = b"Content-Length: 999999999\r\n\r\n"
    answer, is_closed = frontend.raw(HEAD + rest)
    assert status_of(answer) == 400
    assert b"limit of 4096" in answer
    assert is_closed


@pytest.mark.parametrize(("size", "status"), [(3_900, 201), (4_090, 431)])
def test_headers_above_their_limit_are_431(frontend: Process, size: int, status: int) -> None:
    answer, is_closed = frontend.raw(HEAD + b"X: " + b"x" * size + b"\r\n" + BODY, wait_s=0.5)
    assert status_of(answer) == status
    assert is_closed == (status == 431)


@pytest.mark.parametrize(("size", "status"), [(170, 201), (190, 414)])
def test_a_url_above_its_limit_is_414(frontend: Process, size: int, status: int) -> None:
    line = b"POST /topics/shop.orders?" + b"q" * size + b" HTTP/1.1\r\nHost: x\r\n"
    answer, is_closed = frontend.raw(line + BODY, wait_s=0.5)
    assert status_of(answer) == status
    assert is_closed == (status == 414)


def test_the_limits_hold_over_http2(frontend: Process) -> None:
    with httpx.Client(http1=False, http2=True) as client:
        url = f"{frontend.url}/topics/shop.orders"
        assert client.post(url, content=b"{}").status_code == 201
        assert client.post(f"{url}?{'q' * 200}", content=b"{}").status_code == 414
        many = {f"x-{number}": "1" for number in range(21)}
        refused = client.post(url, content=b"{}", headers=many)
        assert (refused.status_code, "frontend.headers_max" in refused.text) == (400, True)
        assert client.post(url, content=bytes(4_097)).status_code == 400
        assert client.post(url, content=b"{}").status_code == 201


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


def test_a_header_that_travels_keeps_its_name() -> None:
    on = {"enabled": True}
    with Process("tell", idle_timeout_ms=1_000, propagation=on) as frontend:
        answer, _ = frontend.raw(
            HEAD + b"Trace-ID: t\r\nAuthorization: Bearer s\r\n" + BODY, wait_s=0.5
        )
        assert status_of(answer) == 201
        (metadata,) = frontend.stored()
        assert metadata["h-Trace-ID"] == "t"
        assert not [each for each in metadata if "authorization" in each.lower()]


def test_a_key_of_its_own_stores_a_message_once() -> None:
    with Process("tell", idle_timeout_ms=1_000) as frontend:
        url = f"{frontend.url}/topics/shop.orders"
        headers = {"Idempotency-Key": '"order-17"'}
        first = httpx.post(url, content=b"1", headers=headers)
        again = httpx.post(url, content=b"1", headers=headers)
        other = httpx.post(url, content=b"2", headers=headers)
        assert [each.status_code for each in (first, again, other)] == [201, 201, 422]
        assert first.headers["hermes-message-id"] == keyed_id("shop.orders", "order-17")
        assert again.headers["hermes-message-id"] == first.headers["hermes-message-id"]
        assert again.headers["idempotency-replayed"] == "true"
        answer, _ = frontend.raw(HEAD + b"Idempotency-Key: k\xc3\xb6\r\n" + BODY, wait_s=0.5)
        assert status_of(answer) == 400
        assert b"Idempotency-Key" in answer
        assert len(frontend.stored()) == 1


def test_an_event_in_both_modes_is_stored_with_its_attributes() -> None:
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
    with Process("tell", idle_timeout_ms=1_000) as frontend:
        url = f"{frontend.url}/topics/shop.orders"
        headers = {f"ce-{name}": value for name, value in event.items()}
        assert httpx.post(url, json={"n": 1}, headers=headers).status_code == 201
        kind = {"Content-Type": "application/cloudevents+json"}
        whole = json.dumps({**event, "datacontenttype": "application/json", "data": {"n": 1}})
        assert httpx.post(url, content=whole, headers=kind).status_code == 201
        refused = httpx.post(url, content=json.dumps({**event, "id": ""}), headers=kind)
        assert (refused.status_code, "'id'" in refused.json()["message"]) == (400, True)
        for stored in frontend.stored():
            assert {name: stored[f"ce_{name}"] for name in event} == event
            assert stored["content-type"] == "application/json"
