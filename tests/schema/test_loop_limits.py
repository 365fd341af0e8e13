"""Which schemas and bodies are checked on the loop."""

import json

import pytest

from hermes_actors.model.schema import SchemaKind
from hermes_actors.schema.loop_limits import is_small, json_parts
from hermes_actors.schema.work import Compiled, loop_schema

ORDER = {
    "$defs": {"line": {"type": "object", "properties": {"sku": {"type": "string"}}}},
    "type": "object",
    "properties": {
        "id": {"type": "string", "pattern": "^[0-9a-f]{8}-[0-9a-f]{4}$"},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
    },
    "required": ["id"],
}


def doubling(levels):
    defs = {f"d{at}": {"allOf": [{"$ref": f"#/$defs/d{at + 1}"}] * 2} for at in range(levels)}
    return {"$defs": {**defs, f"d{levels}": {"type": "string"}}, "$ref": "#/$defs/d0"}


def test_an_everyday_schema_is_for_the_loop():
    assert 0 < json_parts(ORDER) < 60


@pytest.mark.parametrize(
    "schema",
    [
        {"items": {"$ref": "#"}},
        {"$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"},
        doubling(12),
        {"$ref": "#anchor"},
        {"$ref": "https://example.com/other"},
        {"$ref": "#/nowhere"},
        {"properties": {"a": {"$id": "other", "$ref": "#/x"}}},
        {"$dynamicRef": "#/$defs/a"},
        {"allOf": [True], "unevaluatedProperties": False},
        {"enum": list(range(2_000))},
        {"properties": {"$defs": {"enum": list(range(2_000))}}},
        {"pattern": "(a{100}){100}"},
        {"pattern": "a{90000}"},
    ],
)
def test_what_recurses_or_grows_is_for_a_worker(schema):
    assert json_parts(schema) is None
    assert not isinstance(loop_schema(SchemaKind.JSON, json.dumps(schema)), Compiled)


def record(name, *kinds):
    fields = [{"name": f"f{at}", "type": kind} for at, kind in enumerate(kinds)]
    return {"type": "record", "name": name, "fields": fields}


def chain(levels):
    held = record("R0", "int")
    for at in range(1, levels):
        held = record(f"R{at}", held, f"R{at - 1}")
    return held


@pytest.mark.parametrize(
    "schema",
    [
        record("N", ["null", "N"]),
        record("T", {"type": "array", "items": "null"}),
        record("T", {"type": "array", "items": record("E", "null", record("F"))}),
        record("T", {"type": "enum", "name": "E", "symbols": ["x" * 50_000]}),
        chain(20),
        {
            "type": "record",
            "name": "T",
            "fields": [{"name": "a", "type": {"type": "array", "items": "int"}, "default": [1]}],
        },
    ],
)
def test_an_avro_schema_that_recurses_or_grows_is_for_a_worker(schema):
    assert loop_schema(SchemaKind.AVRO, json.dumps(schema)) is None


def test_a_large_body_or_one_of_many_slow_numbers_is_for_a_worker():
    assert is_small(b"e" * 65_536)
    assert not is_small(b"e" * 65_537)
    assert is_small(b"[" + b"1e10," * 1_000 + b"1]")
    assert not is_small(b"[" + b"1e300," * 1_000 + b"1]")
