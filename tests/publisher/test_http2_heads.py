"""The heads of requests and answers over HTTP/2, without sockets."""

import h2.events
import h2.settings
import pytest
import trio

from tests.publisher.test_http2_connection import PATH, Client


@pytest.mark.parametrize("method", ["CONNECT", "FOO", "post", "GE T"])
async def test_another_method_is_501_as_over_http_1_1(world, method, autojump_clock):
    client = Client(world)
    pairs = [(":scheme", "http"), (":path", PATH), (":authority", "x")]
    protocol = [(":protocol", "websocket")] if method == "CONNECT" else []
    client.frames.send_headers(1, [(":method", method), *protocol, *pairs], end_stream=True)
    client.publish(3)
    await client.talk()
    assert client.statuses == {1: 501, 3: 201}


@pytest.mark.parametrize("path", ["/topics/shop orders", "/topics/\x01", "/topics/\xe4"])
async def test_a_target_that_http_1_1_cannot_have_is_400(world, path, autojump_clock):
    client = Client(world)
    client.publish(1, path=path)
    client.publish(3)
    await client.talk()
    assert client.statuses == {1: 400, 3: 201}


async def test_the_answer_to_a_head_has_no_body(world, autojump_clock):
    client = Client(world)
    client.ask(1, "HEAD", x_large="x" * 20_000, ends=True)
    client.publish(3)
    await client.talk()
    assert client.statuses == {1: 431, 3: 201}
    assert client.bodies == {}


@pytest.mark.parametrize("table", [0, 2**32 - 1])
async def test_a_table_of_headers_as_large_as_its_client_likes_stays_small(
    world, table, autojump_clock
):
    client = Client(world)
    client.frames.update_settings({h2.settings.SettingCodes.HEADER_TABLE_SIZE: table})
    await client.talk()
    for number in range(100):
        client.publish(2 * number + 1)
    await client.talk()
    assert client.statuses == dict.fromkeys(range(1, 201, 2), 201)
    assert len(client.line.connection.frames.encoder.header_table.dynamic_entries) < 60


async def test_names_and_values_of_any_length_are_read_as_written(world, autojump_clock):
    client = Client(world)
    fields = [(b"x" * size, b"\xe4" * size) for size in (1, 126, 127, 128, 5_000)]
    client.ask(1, content_length="2")
    client.send()
    client.line.connection.send_head(1, 201, fields, ends=True)
    await trio.sleep(1)
    events = client.frames.receive_data(bytes(client.line.answered))
    (head,) = [each for each in events if isinstance(each, h2.events.ResponseReceived)]
    assert head.headers[:-1] == [(b":status", b"201"), *fields]


@pytest.mark.parametrize(
    "field",
    [
        ("X-Large", "1"), ("x y", "1"), ("", "1"), ("x:y", "1"), ("x", "a\nb"), ("x", " 1"),
        ("te", "gzip"), ("connection", "close"), ("host", "y"), (":status", "200"),
        (":method", "POST"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_trailer", [False, True])
async def test_fields_that_rfc_9113_does_not_allow_end_the_connection(
    world, field, is_trailer, autojump_clock
):
    client = Client(world)
    client.frames.config.validate_outbound_headers = False
    client.frames.config.normalize_outbound_headers = False
    pairs = [(":method", "POST"), (":path", PATH), (":scheme", "http"), (":authority", "x")]
    for stream in (1, 3):
        client.publish(stream)
    if is_trailer:
        client.frames.send_headers(5, pairs)
        client.frames.send_headers(5, [field], end_stream=True)
    else:
        client.frames.send_headers(5, [*pairs, field])
    await client.talk()
    assert client.line.is_closed == (not is_trailer or field[0] != "host")
    assert client.goodbyes == ([5] if client.line.is_closed else [])
    assert len(world.stored) == 2 + (not client.line.is_closed)
