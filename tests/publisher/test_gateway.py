"""Each publish gets the right answer, in the order of the checks."""

import json
import re

import pytest
import trio

from hermes_actors.model.topic import Ack, ContentType
from hermes_actors.publisher.demands import Head
from hermes_actors.status.record import Published

UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


async def test_a_stored_message_is_answered_201_without_a_body(world, autojump_clock) -> None:
    answer = await world.publish(body=b'{"n":1}')
    assert answer.status_code == 201
    assert answer.content == b""
    assert answer.headers["content-length"] == "0"
    assert UUID4.fullmatch(answer.headers["hermes-message-id"])
    (record,) = world.stored
    assert record.value == b'{"n":1}'
    assert dict(record.headers)["id"].decode() == answer.headers["hermes-message-id"]
    assert dict(record.headers)["dc"] == b"dc1"


async def test_a_topic_that_may_exist_elsewhere_is_503_while_the_log_is_away(
    open_world, autojump_clock
) -> None:
    parts = {"doubt_about": lambda topic: "no answer" if topic == "shop.nothing" else ""}
    async with open_world(parts=parts) as world:
        answer = await world.publish("shop.nothing")
        assert (answer.status_code, answer.json()) == (
            503,
            {
                "message": "Topic shop.nothing is not known here, but may exist: no answer; "
                "try again",
                "code": "OTHER",
            },
        )
        assert (await world.publish("shop.never")).status_code == 404


async def test_an_unknown_topic_is_404_with_code_and_id_and_does_not_come_into_being(
    world, autojump_clock
) -> None:
    answer = await world.publish("shop.nothing")
    assert answer.status_code == 404
    assert answer.text == '{"message":"Topic not found: shop.nothing","code":"TOPIC_NOT_EXISTS"}'
    assert answer.headers["content-type"] == "application/json"
    assert UUID4.fullmatch(answer.headers["hermes-message-id"])
    assert "shop.nothing" not in await world.log.topics.names()
    assert 'topic="nothing"' not in world.text()


@pytest.mark.parametrize("path", ["/topics/shop.orders/", "/topics/shop.orders?a=1"])
async def test_a_trailing_slash_and_a_query_are_ignored(world, autojump_clock, path: str) -> None:
    assert (await world.client.post(path, content=b"{}")).status_code == 201


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/topics/shop.orders", 405),
        ("PUT", "/topics/shop.nothing", 405),
        ("POST", "/status/health", 405),
        ("POST", "/", 405),
        ("POST", "/nothing", 404),
        ("POST", "/topics", 404),
        ("POST", "/topics/shop.orders/more", 404),
        ("GET", "/status", 404),
    ],
)
async def test_other_routes_and_verbs_are_refused_bare(
    world, autojump_clock, method: str, path: str, status: int
) -> None:
    answer = await world.client.request(method, path)
    assert (answer.status_code, answer.content) == (status, b"")
    assert "hermes-message-id" not in answer.headers


async def test_an_empty_body_and_a_body_that_is_not_json_are_stored(world, autojump_clock) -> None:
    assert (await world.publish(body=b"")).status_code == 201
    assert (await world.publish(body=b"\xff{", content_type="image/png")).status_code == 201
    assert [record.value for record in world.stored] == [b"", b"\xff{"]


async def test_a_chunked_body_is_stored_whole(world, autojump_clock) -> None:
    async def pieces():
        for piece in (b'{"a"', b":", b"1}"):
            yield piece

    answer = await world.client.post("/topics/shop.orders", content=pieces())
    assert answer.status_code == 201
    assert world.stored[0].value == b'{"a":1}'


async def test_a_wrong_length_is_400_naming_both_numbers(world, autojump_clock) -> None:
    gateway, answers = world.frontend.gateway, []
    publication = gateway.admit(
        "shop.orders", 7, None, Head([], {}), lambda ended: answers.append(ended.answer)
    )
    gateway.hand_over(publication, b"{}")
    error = json.loads(answers[0].body)
    assert (answers[0].status, error["code"]) == (400, "VALIDATION_ERROR")
    assert "7" in error["message"]
    assert "2" in error["message"]
    assert not world.stored


async def test_neither_length_nor_chunks_is_400(world, autojump_clock) -> None:
    request = world.client.build_request("POST", "/topics/shop.orders", content=b"{}")
    del request.headers["content-length"]
    answer = await world.client.send(request)
    assert (answer.status_code, answer.json()["code"]) == (400, "VALIDATION_ERROR")
    assert "-1" in answer.json()["message"]


async def test_more_headers_than_allowed_are_refused_with_the_limit(world, autojump_clock) -> None:
    request = world.client.build_request("POST", "/topics/shop.orders", content=b"{}")
    for number in range(20 - len(request.headers)):
        request.headers[f"x-{number}"] = "1"
    assert (await world.client.send(request)).status_code == 201
    request.headers["x-more"] = "1"
    answer = await world.client.send(request)
    assert answer.status_code == 400
    assert "21 headers; this server takes at most 20" in answer.json()["message"]


async def test_a_topics_size_limit_is_enforced_unless_that_is_turned_off(
    open_world, autojump_clock
) -> None:
    async with open_world(force_topic_max_message_size=False) as lenient:
        await lenient.add_topic("shop.orders", message_bytes_max=1_024)
        assert (await lenient.publish(body=bytes(1_025))).status_code == 201
    async with open_world() as strict:
        await strict.add_topic("shop.orders", message_bytes_max=1_024)
        assert (await strict.publish(body=bytes(1_024))).status_code == 201
        answer = await strict.publish(body=bytes(1_025))
        assert (answer.status_code, answer.json()["code"]) == (400, "VALIDATION_ERROR")
        for said in ("1025 bytes", "at most 1024", "maxMessageSize", "shop.orders"):
            assert said in answer.json()["message"]


async def test_a_message_above_the_logs_bound_is_the_clients_error_and_names_the_limit(
    open_world, autojump_clock
) -> None:
    async with open_world(force_topic_max_message_size=False) as world:
        await world.add_topic("shop.orders")
        answer = await world.publish(body=bytes(1_500_000))
        assert (answer.status_code, answer.json()["code"]) == (400, "VALIDATION_ERROR")
        said = answer.json()["message"]
        assert "was not stored" in said
        for said_of in ("1048576", "management.topic_bytes_max", "maxMessageSize", "15000"):
            assert said_of in said
        assert not world.stored


async def test_the_hard_bound_holds_for_announced_and_for_chunked_bodies(
    open_world, autojump_clock
) -> None:
    async with open_world(body_bytes_max=100) as world:
        await world.add_topic("shop.orders")
        assert (await world.publish(body=bytes(100))).status_code == 201
        announced = await world.call([], {"content-length": "101"})
        chunked = await world.call([bytes(50)] * 100, {"transfer-encoding": "chunked"})
        assert "Message of 101 bytes is above" in json.loads(announced[1])["message"]
        for status, body, headers in (announced, chunked):
            assert "limit of 100 (frontend.body_bytes_max)" in json.loads(body)["message"]
            assert (status, json.loads(body)["code"]) == (400, "VALIDATION_ERROR")
            assert headers["connection"] == "close"
        assert len(world.stored) == 1
        assert world.frontend.drain.in_flight == 0


async def test_the_length_is_checked_before_the_schema(world, autojump_clock) -> None:
    await world.add_topic("shop.clicks", content_type=ContentType.AVRO)
    status, _, _ = await world.call([], {}, "shop.clicks")
    assert status == 400


@pytest.mark.parametrize("is_on", [False, True])
async def test_the_keep_alive_header_is_sent_only_when_turned_on(
    open_world, autojump_clock, is_on: bool
) -> None:
    async with open_world(keep_alive_header=is_on, keep_alive_header_timeout_s=3) as world:
        await world.add_topic("shop.orders")
        for topic in ("shop.orders", "shop.nothing"):
            answer = await world.publish(topic)
            assert answer.headers.get("keep-alive") == ("timeout=3" if is_on else None)


async def test_a_log_that_is_unavailable_is_500_with_its_reason(world, autojump_clock) -> None:
    world.log.faults.unavailable_rate = 1.0
    answer = await world.publish()
    assert (answer.status_code, answer.json()["code"]) == (500, "INTERNAL_ERROR")
    assert "was not stored" in answer.json()["message"]


async def test_a_lost_acknowledgement_is_500_and_says_that_it_is_unknown(
    world, autojump_clock
) -> None:
    world.log.faults.acknowledgement_lost_rate = 1.0
    answer = await world.publish()
    assert (answer.status_code, answer.json()["code"]) == (500, "INTERNAL_ERROR")
    assert "may or may not have been stored" in answer.json()["message"]


@pytest.mark.parametrize(
    ("ack", "fallback", "limit_ms"),
    [
        (Ack.LEADER, False, 65),
        (Ack.NONE, False, 65),
        (Ack.ALL, False, 400),
        (Ack.LEADER, True, 500),
        (Ack.ALL, True, 500),
    ],
)
async def test_a_silent_log_is_503_after_the_limit_of_the_topic(
    world, autojump_clock, ack: Ack, fallback: bool, limit_ms: int
) -> None:
    await world.add_topic("shop.slow", ack=ack, fallback=fallback)
    await world.publish("shop.slow")
    world.log.faults.silent = True
    start_s = trio.current_time()
    answer = await world.publish("shop.slow")
    assert trio.current_time() - start_s == pytest.approx(limit_ms / 1_000, abs=0.002)
    assert (answer.status_code, answer.json()["code"]) == (503, "SENDING_TO_KAFKA_TIMEOUT")
    assert f"{limit_ms} ms" in answer.json()["message"]


@pytest.mark.parametrize("headers", [{"content-length": "6"}, {"transfer-encoding": "chunked"}])
async def test_a_body_that_trickles_beyond_the_limit_is_408(world, autojump_clock, headers) -> None:
    start_s = trio.current_time()
    status, body, sent = await world.call([b"x", 0.03] * 6, headers)
    assert trio.current_time() - start_s == pytest.approx(0.065, abs=0.002)
    assert (status, json.loads(body)["code"]) == (408, "TIMEOUT")
    assert b"65 ms" in body
    assert sent["connection"] == "close"
    assert not world.stored


async def test_headers_and_then_silence_end_the_connection_without_a_word(
    world, autojump_clock
) -> None:
    start_s = trio.current_time()
    status, body, _ = await world.call([10.0], {"content-length": "2"})
    assert (status, body) == (0, b"")
    assert trio.current_time() - start_s == pytest.approx(2, abs=0.5)
    assert 'status_code="408"} 1.0' in world.text()


async def test_a_publisher_that_leaves_in_mid_body_is_forgotten(world, autojump_clock) -> None:
    status, _, _ = await world.call([b"x", "leave"], {"content-length": "2"})
    assert status == 0
    assert world.frontend.drain.in_flight == 0
    await trio.sleep(1)
    assert not world.stored


async def test_before_start_up_has_finished_publishes_are_refused_empty(
    open_world, autojump_clock
) -> None:
    async with open_world(is_open=False) as world:
        await world.add_topic("shop.orders")
        answer = await world.publish()
        assert (answer.status_code, answer.content) == (503, b"")
        assert (await world.client.get("/status/ping")).text == "SHUTDOWN"


async def test_a_full_mailbox_is_503_at_once(open_world, autojump_clock) -> None:
    async with open_world(waiting_per_topic_max=3, batch_records_max=1) as world:
        await world.add_topic("shop.orders")
        world.log.faults.silent = True
        world.admit()
        await trio.sleep(0.001)
        waiting = [world.admit() for _ in range(3)]
        assert not any(publication.is_done for publication in waiting)
        start_s = trio.current_time()
        answer = await world.publish()
        assert trio.current_time() == start_s
        assert (answer.status_code, answer.json()["code"]) == (503, "OTHER")
        assert "too many messages wait" in answer.json()["message"]


async def test_the_status_pages_tell_up_and_ready(world, autojump_clock) -> None:
    for path in ("/", "/status/ping", "/status/health"):
        page = await world.client.get(path)
        assert (page.status_code, page.text) == (200, "UP")
    page = await world.client.get("/status/ready")
    assert (page.status_code, page.text) == (200, "READY")
    for path, text in (
        ("/livez", "ok\n"),
        ("/startupz", "[+]process ok\nstartupz check passed\n"),
        ("/readyz?verbose", "[+]process ok\nreadyz check passed\n"),
    ):
        page = await world.client.get(path)
        assert (page.status_code, page.text) == (200, text)
        assert page.headers["content-type"] == "text/plain"


async def test_the_metrics_are_scraped_as_prometheus_text(world, autojump_clock) -> None:
    await world.publish(body=b"12345")
    await world.call([], {})
    page = await world.client.get("/status/prometheus")
    assert page.headers["content-type"] == "text/plain;version=0.0.4;charset=utf-8"
    for line in (
        'topic_published_total{group="shop",storageDc="dc1",topic="orders"} 1.0',
        'topic_requests_total{group="shop",topic="orders"} 2.0',
        'topic_http_status_codes_total{group="shop",status_code="201",topic="orders"} 1.0',
        'topic_http_status_codes_total{group="shop",status_code="400",topic="orders"} 1.0',
        'topic_global_http_status_codes_total{status_code="201"} 1.0',
        'topic_throughput_bytes_total{group="shop",topic="orders"} 5.0',
        'topic_ack_leader_latency_seconds_count{group="shop",topic="orders"} 1.0',
        "inflight_requests 0.0",
    ):
        assert f"hermes_frontend_{line}\n" in page.text


async def test_what_was_published_is_told_by_topic_for_the_nodes_status(
    world, autojump_clock
) -> None:
    await world.add_topic("shop.quiet")
    await world.publish(body=b"1234")
    await world.publish(body=b"12")
    await world.publish("shop.nothing")
    world.log.faults.unavailable_rate = 1.0
    await world.publish(body=b"1")
    assert world.frontend.topics() == ["shop.orders"]
    assert world.frontend.published("shop.orders") == Published(2, 7, failed=1)
    assert world.frontend.published("shop.quiet") == Published()
    assert world.frontend.published("shop.nothing") is None
