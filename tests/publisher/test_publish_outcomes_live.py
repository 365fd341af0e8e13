"""Every answer that a publisher may get, each seen through a real socket, over both protocols."""

import os
import re
import signal
import socket
import threading
import time  # noqa: TID251 -- real processes take real time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.publisher.frontend_process import HEAD, PROTOCOLS, Process, fetch, status_of

pytestmark = pytest.mark.live

BODY = b"Content-Length: 2\r\n\r\n{}"
ROOT = Path(__file__).parent.parent.parent

OUTCOMES = (
    (201, ""),
    (202, ""),
    (400, "VALIDATION_ERROR"),
    (400, ""),
    (400, "SCHEMA_VERSION_DOES_NOT_EXIST"),
    (401, ""),
    (403, "AUTH_ERROR"),
    (404, "TOPIC_NOT_EXISTS"),
    (404, ""),
    (405, ""),
    (408, "TIMEOUT"),
    (409, "OTHER"),
    (414, "VALIDATION_ERROR"),
    (414, ""),
    (422, "VALIDATION_ERROR"),
    (429, "THROUGHPUT_QUOTA_VIOLATION"),
    (431, "VALIDATION_ERROR"),
    (431, ""),
    (500, "SCHEMA_COULD_NOT_BE_LOADED"),
    (500, "INTERNAL_ERROR"),
    (503, "SENDING_TO_KAFKA_TIMEOUT"),
    (503, "OTHER"),
    (503, ""),
)
"""Status and code (no code: no body) of every answer to a publish."""


def test_every_outcome_is_told_to_the_publisher() -> None:
    page = (ROOT / "docs" / "publishing.md").read_text()
    for status, code in OUTCOMES:
        rows = [line for line in page.splitlines() if re.match(rf"\| [0-9, ]*{status}\b", line)]
        assert any((f"`{code}`" if code else "no body") in row for row in rows) or status < 300, (
            status,
            code,
        )


@pytest.fixture(scope="module")
def frontend() -> Iterator[Process]:
    with Process(
        idle_timeout_ms=1_000,
        long_idle_timeout_ms=1_000,
    ) as process:
        yield process


def publish(
    frontend: Process,
    protocol: str,
    topic: str = "shop.orders",
    content: bytes = b"{}",
    **headers: str,
) -> httpx.Response:
    return fetch(
        protocol,
        "POST",
        f"{frontend.url}/topics/{topic}",
        content=content,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )


def check_error(answer: httpx.Response, status: int, code: str) -> str:
    """What every error with a body has; its text."""
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert list(answer.json()) == ["message", "code"]
    assert answer.headers["content-type"] == "application/json"
    assert re.fullmatch(r"[0-9a-f-]{36}", answer.headers["hermes-message-id"])
    text = answer.json()["message"]
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("topic", ["shop.orders", "shop.audit"])
def test_stored_is_201(frontend: Process, topic: str, protocol: str) -> None:
    answer = publish(frontend, protocol, topic)
    assert (answer.status_code, answer.content) == (201, b"")
    assert answer.headers["content-length"] == "0"
    assert re.fullmatch(r"[0-9a-f-]{36}", answer.headers["hermes-message-id"])


def test_a_wrong_length_is_400(frontend: Process) -> None:
    answer, _ = frontend.raw(HEAD + b"\r\n", wait_s=0.5)
    assert status_of(answer) == 400
    assert b'"code":"VALIDATION_ERROR"' in answer
    assert b"-1" in answer


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_too_large_is_400(frontend: Process, protocol: str) -> None:
    text = check_error(publish(frontend, protocol, content=bytes(2_049)), 400, "VALIDATION_ERROR")
    assert "2049" in text
    assert "2048" in text
    text = check_error(
        publish(frontend, protocol, content=bytes(2_097_153)), 400, "VALIDATION_ERROR"
    )
    assert "2097152" in text


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_wrong_key_or_event_is_400(frontend: Process, protocol: str) -> None:
    text = check_error(publish(frontend, protocol, idempotency_key="a b"), 400, "VALIDATION_ERROR")
    assert "Idempotency-Key" in text
    text = check_error(publish(frontend, protocol, ce_specversion="1.0"), 400, "VALIDATION_ERROR")
    assert "'id' is missing" in text


def test_what_is_not_http_is_a_bare_400(frontend: Process) -> None:
    answer, is_closed = frontend.raw(HEAD + b"Content-Length: x\r\n\r\n{}")
    assert status_of(answer) == 400
    assert answer.endswith(b"\r\n\r\n")
    assert b"hermes-message-id" not in answer.lower()
    assert is_closed


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_unknown_topic_is_404(frontend: Process, protocol: str) -> None:
    text = check_error(publish(frontend, protocol, "shop.nothing"), 404, "TOPIC_NOT_EXISTS")
    assert "shop.nothing" in text


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_another_path_is_a_bare_404_and_another_verb_405(frontend: Process, protocol: str) -> None:
    for method, path, status in (("POST", "/nothing", 404), ("GET", "/topics/shop.orders", 405)):
        answer = fetch(protocol, method, frontend.url + path)
        assert (answer.status_code, answer.content) == (status, b"")


def test_a_body_that_does_not_come_in_time_is_408(frontend: Process) -> None:
    steps: list[bytes | float] = [HEAD + b"Content-Length: 90\r\n\r\n"]
    for _ in range(14):
        steps += [b"x", 0.1]
    answer, is_closed = frontend.raw(*steps)
    assert status_of(answer) == 408
    assert b'"code":"TIMEOUT"' in answer
    assert b"1000 ms" in answer
    assert is_closed


def test_a_head_above_a_limit_is_400_or_414_or_431(frontend: Process) -> None:
    many = HEAD + b"X: 1\r\n" * 20
    path = b"POST /topics/shop.orders?" + b"q" * 8_192 + b" HTTP/1.1\r\nHost: x\r\n"
    large = HEAD + b"X: " + b"x" * 16_384 + b"\r\n"
    limits = (b"headers_max", b"url_bytes_max", b"header_bytes_max")
    for head, status, limit in zip((many, path, large), (400, 414, 431), limits, strict=True):
        answer, is_closed = frontend.raw(head + BODY)
        assert status_of(answer) == status
        assert b"frontend." + limit in answer
        assert b"VALIDATION_ERROR" in answer
        assert is_closed


def test_far_too_large_a_head_is_a_bare_414_or_431(frontend: Process) -> None:
    # Refused before its end has come.
    path = b"POST /topics/shop.orders?" + b"q" * 30_000
    large = HEAD + b"X: " + b"x" * 40_000
    for head, status in ((path, 414), (large, 431)):
        answer, is_closed = frontend.raw(head)
        assert status_of(answer) == status
        assert answer.endswith(b"\r\n\r\n")
        assert is_closed


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_topic_without_its_schema_is_500(frontend: Process, protocol: str) -> None:
    check_error(publish(frontend, protocol, "shop.clicks"), 500, "SCHEMA_COULD_NOT_BE_LOADED")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_the_log_finds_too_large_is_400(protocol: str) -> None:
    # The topic's limit is not enforced, the log's is: 1 MiB.
    with Process(idle_timeout_ms=5_000, force_topic_max_message_size=False) as frontend:
        answer = publish(frontend, protocol, content=bytes(1_500_000))
        text = check_error(answer, 400, "VALIDATION_ERROR")
        assert "1048576" in text
        assert publish(frontend, protocol).status_code == 201


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_datacentre_in_time_is_500_naming_each(protocol: str) -> None:
    with Process("silent", max_publish_request_duration_ms=2_000) as frontend:
        answer = publish(frontend, protocol, "shop.distant")
        text = check_error(answer, 500, "INTERNAL_ERROR")
        assert "[dc1" in text
        assert "[dc2" in text


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_no_log_takes_is_202_with_a_spool(protocol: str, tmp_path: Path) -> None:
    spool = f"spool={tmp_path}"
    with Process("silent", spool, idle_timeout_ms=500) as frontend:
        answer = publish(frontend, protocol)
        assert (answer.status_code, answer.content) == (202, b"")
        assert answer.headers["content-length"] == "0"
        assert re.fullmatch(r"[0-9a-f-]{36}", answer.headers["hermes-message-id"])
        keyed = publish(frontend, protocol, idempotency_key="k")
        assert keyed.status_code == 202
        again = publish(frontend, protocol, idempotency_key="k")
        assert (again.status_code, again.headers["idempotency-replayed"]) == (202, "true")
        assert again.headers["hermes-message-id"] == keyed.headers["hermes-message-id"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_topic_above_its_quota_is_429(protocol: str) -> None:
    quota = {"type": "fixed", "fixed_max_bytes_per_s": 10}
    with Process(idle_timeout_ms=1_000, throughput=quota) as frontend:
        assert publish(frontend, protocol, content=bytes(600)).status_code == 201
        # Twice: after the body, whose bytes count, and then before it.
        for _ in range(2):
            answer = publish(frontend, protocol, content=bytes(600))
            text = check_error(answer, 429, "THROUGHPUT_QUOTA_VIOLATION")
            assert re.search(r"is (19|20) bytes/s, above the limit of 10 bytes/s", text)
            assert 0 < int(answer.headers["retry-after"]) <= 36
        assert publish(frontend, protocol, "shop.audit").status_code == 201
        # The connection goes on after a refusal whose body was not waited for.
        is_http2 = protocol == "HTTP/2"
        with httpx.Client(http1=not is_http2, http2=is_http2) as client:
            for topic, status in (("orders", 429), ("audit", 201), ("orders", 429)):
                url = f"{frontend.url}/topics/shop.{topic}"
                assert client.post(url, content=bytes(100)).status_code == status


def in_background(call: Callable[[], httpx.Response]) -> tuple[threading.Thread, list[int]]:
    statuses: list[int] = []
    thread = threading.Thread(target=lambda: statuses.append(call().status_code))
    thread.start()
    return thread, statuses


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_key_in_use_is_409_and_one_for_another_message_422(protocol: str) -> None:
    with Process("silent", idle_timeout_ms=1_500) as frontend:
        first, statuses = in_background(lambda: publish(frontend, protocol, idempotency_key="k"))
        time.sleep(0.5)
        text = check_error(publish(frontend, protocol, idempotency_key="k"), 409, "OTHER")
        assert "under way" in text
        first.join()
        assert statuses == [503]
    with Process(idle_timeout_ms=1_000) as frontend:
        assert publish(frontend, protocol, idempotency_key="k").status_code == 201
        answer = publish(frontend, protocol, content=b"other", idempotency_key="k")
        check_error(answer, 422, "VALIDATION_ERROR")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_log_that_does_not_answer_is_503_with_a_code(protocol: str) -> None:
    with Process("silent", idle_timeout_ms=200) as frontend:
        text = check_error(publish(frontend, protocol), 503, "SENDING_TO_KAFKA_TIMEOUT")
        assert "200 ms" in text


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_too_many_that_wait_are_503(protocol: str) -> None:
    with Process(
        "silent",
        idle_timeout_ms=3_000,
        waiting_per_topic_max=1,
        batch_records_max=1,
        graceful_shutdown_drain_ms=100,
    ) as frontend:
        waiting = []
        try:
            # One is with the log, others wait for it; soon there is no place.
            for _ in range(12):
                connection = socket.create_connection(("127.0.0.1", frontend.port))
                connection.sendall(HEAD + BODY)
                waiting.append(connection)
                time.sleep(0.05)
            text = check_error(publish(frontend, protocol), 503, "OTHER")
            assert "too many messages wait" in text
        finally:
            for connection in waiting:
                connection.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_node_that_ends_is_a_bare_503(protocol: str) -> None:
    with (
        Process(
            "silent",
            idle_timeout_ms=3_000,
            graceful_shutdown_initial_wait_ms=10,
            graceful_shutdown_drain_ms=5_000,
        ) as frontend,
        socket.create_connection(("127.0.0.1", frontend.port)) as held,
    ):
        # A publish under way keeps the node from ending at once.
        held.sendall(HEAD + BODY)
        time.sleep(0.3)
        os.kill(frontend.process.pid, signal.SIGTERM)
        time.sleep(0.5)
        answer, is_closed = frontend.raw(HEAD + BODY, wait_s=1)
        assert status_of(answer) == 503
        assert answer.endswith(b"\r\n\r\n")
        assert is_closed
        held.settimeout(10)
        # What was under way is answered.
        assert status_of(held.recv(4_096)) == 503
        assert frontend.process.wait(timeout=20) == 0
