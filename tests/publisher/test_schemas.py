"""A topic's JSON Schema at its publishers' door: on the loop, beside it, and in a batch."""

import json
from contextlib import contextmanager

import msgspec
import pytest
import trio

from hermes_actors.metadata.schemas import schema_body, schema_key, version_body, version_key
from hermes_actors.metadata.state import Register
from hermes_actors.model.schema import Schema, SchemaKind
from hermes_actors.runtime.workers import OWNER_WAITING_MAX, InlinePool
from tests.publisher.batch_exchange import call

ORDER = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
COSTLY = {"$defs": {"order": ORDER, "list": {"items": {"$ref": "#/$defs/list"}}}}
COSTLY |= {"allOf": [{"$ref": "#/$defs/order"}, {"$ref": "#/$defs/list"}]}
"""It refers to itself: messages are checked in a worker."""


def set_schema(world, schema: object, version: int = 1, topic: str = "shop.orders") -> None:
    """As the router does when the metadata log says so."""
    stored = Schema(SchemaKind.JSON, json.dumps(schema))
    for key, body in (
        (schema_key(version), schema_body(stored)),
        (version_key(topic, version), version_body(version)),
    ):
        world.catalog.apply(Register(key, 0, version, "dc1", body))
    world.frontend.routes.renew_schema(topic)


@contextmanager
def working(world):
    """Jobs of the world's pool are run at once."""
    held, world.pool.submit = world.pool.submit, InlinePool().submit
    yield
    world.pool.submit = held


@pytest.fixture
async def checked(world, autojump_clock):
    await world.add_topic("shop.orders")
    set_schema(world, ORDER)
    await trio.sleep(0.01)
    return world


def refused(answer) -> str:
    assert answer.status_code == 400
    error = answer.json()
    assert error["code"] == "VALIDATION_ERROR"
    return error["message"]


async def test_what_fits_is_stored_as_it_came(checked, autojump_clock) -> None:
    answer = await checked.publish(body=b'{ "id": 1 }')
    assert answer.status_code == 201
    assert [record.value for record in checked.stored] == [b'{ "id": 1 }']


async def test_what_does_not_fit_is_refused_with_the_field_and_never_stored(
    checked, autojump_clock
) -> None:
    answer = await checked.publish(body=b'{"id": "x"}')
    assert refused(answer) == "Invalid message: id must be an integer, not a string"
    assert answer.headers["hermes-message-id"]
    assert checked.stored == []


async def test_a_new_version_is_used_from_the_next_message_on(checked, autojump_clock) -> None:
    set_schema(checked, {"required": ["name"]}, version=2)
    assert refused(await checked.publish(body=b'{"id": 1}')) == "Invalid message: name is missing"
    assert (await checked.publish(body=b'{"name": 1}')).status_code == 201


async def test_a_topic_whose_schema_is_gone_takes_everything(checked, autojump_clock) -> None:
    checked.catalog.apply(Register(version_key("shop.orders", 1), 0, 9, "dc1", None))
    checked.frontend.routes.renew_schema("shop.orders")
    assert (await checked.publish(body=b"plain text")).status_code == 201


async def test_a_first_avro_schema_takes_no_check_away_before_the_topic_is_avro(
    checked, autojump_clock
) -> None:
    avro = Schema(SchemaKind.AVRO, '{"type": "record", "name": "T", "fields": []}')
    for key, body in (
        (schema_key(2), schema_body(avro)),
        (version_key("shop.orders", 2), version_body(2)),
    ):
        checked.catalog.apply(Register(key, 0, 2, "dc1", body))
    checked.frontend.routes.renew_schema("shop.orders")
    assert "id must be" in refused(await checked.publish(body=b'{"id": "x"}'))


async def test_a_costly_message_is_checked_beside_the_loop(checked, autojump_clock) -> None:
    set_schema(checked, COSTLY, version=2)
    with working(checked):
        assert (await checked.publish(body=b'{"id": 1}')).status_code == 201
        assert "id must be" in refused(await checked.publish(body=b'{"id": "x"}'))
    assert len(checked.stored) == 1


async def test_where_too_many_costly_ones_wait_the_next_is_told_to_come_again(
    checked, autojump_clock
) -> None:
    set_schema(checked, COSTLY, version=2)
    waiting = [checked.admit(body=b'{"id": 1}') for _ in range(OWNER_WAITING_MAX)]
    answer = await checked.publish(body=b'{"id": 1}')
    assert answer.status_code == 503
    assert not any(pending.is_done for pending in waiting)
    await trio.sleep(1)
    assert all(pending.is_done for pending in waiting)
    assert checked.stored == []


async def test_a_stored_schema_that_this_node_cannot_use_lets_nothing_in(
    checked, autojump_clock
) -> None:
    set_schema(checked, {"type": "from another version"}, version=2)
    answer = await checked.publish(body=b'{"id": 1}')
    assert answer.status_code == 500
    assert answer.json()["code"] == "SCHEMA_COULD_NOT_BE_LOADED"


async def test_of_a_batch_each_message_is_checked_by_itself(checked, autojump_clock) -> None:
    lines = (await call(checked, b'{"id":1}\n{"id":"x"}\n{"id":2}\n')).lines
    assert [line["status"] for line in lines] == [201, 400, 201]
    assert lines[1]["message"] == "Invalid message: id must be an integer, not a string"
    assert [msgspec.json.decode(record.value)["id"] for record in checked.stored] == [1, 2]


async def test_a_batch_that_is_much_work_is_checked_in_several_turns(
    checked, autojump_clock
) -> None:
    set_schema(checked, {"items": {"enum": [None, *range(1_500)]}}, version=2)
    host, turns = checked.edge.host, []
    soon = host.soon
    host.soon = lambda callback: (turns.append(callback), soon(callback))
    exchange = await call(checked, b"[1,2,3]\n" * 400)
    assert [line["status"] for line in exchange.lines] == [201] * 400
    assert len(checked.stored) == 400
    assert sum(each.__name__ == "_next_turn" for each in turns if hasattr(each, "__name__")) >= 4


async def test_a_schema_that_breaks_the_weighing_stops_nothing_but_its_topic(
    checked, autojump_clock
) -> None:
    set_schema(checked, {"then": {"$ref": "#/allOf/" + "1" * 5_000}, "allOf": [True]}, version=2)
    await checked.add_topic("shop.clicks")
    assert (await checked.publish("shop.clicks", b"plain text")).status_code == 201


async def test_what_is_costly_is_refused_in_a_batch_and_told_how(checked, autojump_clock) -> None:
    set_schema(checked, COSTLY, version=2)
    (line,) = (await call(checked, b'{"id":1}\n')).lines
    assert line["status"] == 400
    assert "publish it by itself" in line["message"]
