"""Messages in Avro as people see them: in the tail and as dead letters."""

import base64
import json

from hermes_actors.management.messages import tail as tail_module
from hermes_actors.model.message import Message, to_record
from hermes_actors.model.schema import WriterSchema
from hermes_actors.model.topic import Ack
from tests.consumer.avro_scene import PLAIN, avro
from tests.management.dead_letters_scene import LETTERS, Desk

META = {"__metadata": {"messageId": "m"}}
LARGE_SCHEMA = PLAIN.replace('"int"', '"string"')


async def with_topic(api, schema=PLAIN):
    await api.with_topic(contentType="AVRO", schema=schema)
    return api.metadata.catalog.subjects["shop.orders"][1]


def record_of(body, schema_id, version=1):
    written = WriterSchema(version, schema_id)
    return to_record(Message("m-1", body, 1_700_000_000_000, dc="dc1", written_with=written))


async def lines(api, **parameters):
    answer = await api.get("/topics/shop.orders/messages", params=parameters)
    return [json.loads(line) for line in answer.text.splitlines()]


async def test_the_tail_shows_the_json_that_subscribers_get(api, monkeypatch):
    schema_id = await with_topic(api)
    records = [record_of(avro(PLAIN, n=n, **META), schema_id) for n in range(50)]
    await api.log.append("shop.orders", 0, records, Ack.LEADER)
    # A few at a time, and all of them.
    monkeypatch.setattr(tail_module, "LINES_BYTES_MAX", 300)
    for parameters in ({"from": "beginning"}, {"last": "50"}):
        shown = await lines(api, **parameters)
        assert [each["body"] for each in shown] == [f'{{"n":{n}}}' for n in range(50)]
        assert not any("error" in each for each in shown)


async def test_what_cannot_be_read_is_shown_in_base64_with_the_reason(api):
    schema_id = await with_topic(api)
    body = avro(PLAIN, n=1)
    records = [record_of(body, 99, version=7), record_of(b"\xff", schema_id)]
    await api.log.append("shop.orders", 0, records, Ack.LEADER)
    unknown, broken = await lines(api, **{"from": "beginning"})
    assert unknown["bodyBase64"] == base64.b64encode(body).decode()
    assert "version 7, id 99, is not known" in unknown["error"]
    assert unknown["id"] == "m-1"
    assert (broken["bodyBase64"], bool(broken["error"])) == ("/w==", True)


async def test_a_large_body_is_read_beside_the_loop(api):
    schema_id = await with_topic(api, LARGE_SCHEMA)
    body = avro(LARGE_SCHEMA, n="x" * 100_000)
    await api.log.append("shop.orders", 0, [record_of(body, schema_id)], Ack.LEADER)
    (shown,) = await lines(api, **{"from": "beginning"})
    assert json.loads(shown["body"]) == {"n": "x" * 100_000}


async def test_a_dead_letter_shows_json_and_the_numbers_of_its_schema(api):
    schema_id = await with_topic(api)
    await api.with_subscription()
    desk = Desk(api, api.log)
    record = record_of(avro(PLAIN, n=7, **META), schema_id)
    unknown = record_of(avro(PLAIN, n=7), 99, version=7)
    await desk.write(
        *[
            desk.letter(offset, value=each.value, headers=each.headers)
            for offset, each in enumerate((record, unknown))
        ]
    )
    found = (await api.get(f"{LETTERS}/{desk.id(0)}")).json()
    assert found["message"] == '{"n":7}'
    assert (found["headers"]["sv"], found["headers"]["sid"]) == ("1", str(schema_id))
    found = (await api.get(f"{LETTERS}/{desk.id(1)}")).json()
    assert found["messageBase64"] == base64.b64encode(unknown.value).decode()
    assert "id 99, is not known" in found["error"]
