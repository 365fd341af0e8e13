"""The work on schemas that goes to workers, in a worker."""

import json

import pytest
import trio

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.model.schema import Compatibility, Schema, SchemaKind
from hermes_actors.runtime.workers import TooCostly, WorkerPool
from hermes_actors.schema.avro import BodyForm
from hermes_actors.schema.compatibility import disagreements
from hermes_actors.schema.work import compiles, decodes, loop_schema, takes

pytestmark = pytest.mark.live

NUMBERS = Schema(SchemaKind.JSON, '{"type": "array", "items": {"type": "integer"}}')
NODE = {"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]}


def doubling(levels: int) -> str:
    """A schema that applies 2^levels parts to one value."""
    definitions: dict = {
        f"d{at}": {"allOf": [{"$ref": f"#/$defs/d{at + 1}"}] * 2} for at in range(levels)
    }
    definitions[f"d{levels}"] = {"type": "string"}
    return json.dumps({"$defs": definitions, "$ref": "#/$defs/d0"})


@pytest.fixture
async def ask():
    pool, stop = WorkerPool(), trio.Event()

    async def ask(work, *args, cpu_s=2.0):
        return await pool.ask("a", cpu_s, work, *args)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(pool.run, stop)
        yield ask
        stop.set()


async def test_messages_and_schemas_are_checked_in_a_worker(ask):
    assert await ask(takes, NUMBERS, b"[1, 2]") == b"[1, 2]"
    with pytest.raises(Refused, match=r"Invalid message: \[1\] must be an integer, not a string"):
        await ask(takes, NUMBERS, b'[1, "x"]')
    with pytest.raises(Refused) as malformed:
        await ask(compiles, Schema(SchemaKind.JSON, '{"type": "strin"}'), "a.b", False)
    assert malformed.value.code is ErrorCode.FORMAT_ERROR
    anything = Schema(SchemaKind.JSON, "{}")
    assert await ask(disagreements, Compatibility.BACKWARD, anything, {1: NUMBERS}) == []
    assert await ask(disagreements, Compatibility.FORWARD, anything, {1: NUMBERS}) != []


async def test_a_body_that_overflows_the_readers_stack_ends_a_worker_and_not_the_node(ask):
    schema = json.dumps(NODE)
    assert loop_schema(SchemaKind.AVRO, schema) is None
    avro = Schema(SchemaKind.AVRO, schema)
    stored = await ask(takes, avro, b'{"n": {"n": null}}', BodyForm.JSON, {})
    assert stored == b"\x02\x00"
    assert await ask(decodes, schema, stored, False) == b'{"n":{"n":null}}'
    with pytest.raises(Refused):
        await ask(decodes, schema, b"\x02" * 10_000_000, False)
    assert await ask(decodes, schema, stored, False) == b'{"n":{"n":null}}'


async def test_items_that_take_no_bytes_have_an_end(ask):
    kind = {"type": "array", "items": "null"}
    schema = json.dumps({"type": "record", "name": "T", "fields": [{"name": "a", "type": kind}]})
    with pytest.raises(Refused):
        await ask(decodes, schema, b"\xfe\xff\xff\xff\xff\xff\x7f\x00", False, cpu_s=0.2)


async def test_a_check_that_doubles_with_each_level_is_given_up(ask):
    with pytest.raises(TooCostly, match="more than 100 ms of CPU"):
        await ask(takes, Schema(SchemaKind.JSON, doubling(40)), b'"x"', cpu_s=0.1)


async def test_avro_schemas_that_take_long_to_be_compared_are_given_up(ask):
    """Each of the one's 700 records is compared with each of the other's."""

    def many(name: str) -> Schema:
        fields = [{"name": "a", "type": "int"}]
        records = [{"type": "record", "name": f"r{at}", "fields": fields} for at in range(700)]
        body = {"type": "record", "name": name, "fields": [{"name": "u", "type": records}]}
        return Schema(SchemaKind.AVRO, json.dumps(body))

    with pytest.raises(TooCostly, match="more than 200 ms of CPU"):
        await ask(disagreements, Compatibility.FULL, many("one"), {1: many("one")}, cpu_s=0.2)
