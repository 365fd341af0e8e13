"""Avro schemas: what publishers send becomes Avro, and Avro what people read."""

import io
import json
from contextlib import suppress
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.schema.avro import AvroSchema, BodyForm, UndecodableAvro, avro_schema
from hermes_actors.schema.avro_conversion import narrowed
from tests.schema.avro_values import Made

METADATA = {"name": "__metadata", "type": ["null", {"type": "map", "values": "string"}]}
TOLD = {"messageId": "8e03978e", "timestamp": "17"}


def schema_of(*fields: dict[str, Any], has_metadata: bool = False) -> AvroSchema:
    metadata = [METADATA | {"default": None}] if has_metadata else []
    return avro_schema(json.dumps({"type": "record", "name": "T", "fields": [*metadata, *fields]}))


def field(kind: Any, name: str = "age", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def lenient(schema: AvroSchema, value: Any) -> Any:
    stored = schema.take(json.dumps(value).encode(), BodyForm.JSON, TOLD)
    return json.loads(schema.to_json(stored))


def refusal(schema: AvroSchema, body: bytes, form: BodyForm = BodyForm.JSON) -> str:
    with pytest.raises(Refused) as caught:
        schema.take(body, form, TOLD)
    assert caught.value.code is ErrorCode.VALIDATION_ERROR
    assert caught.value.status == 400
    return caught.value.message


@pytest.mark.parametrize("seeds", [range(at, at + 40) for at in (0, 40, 80)], ids=str)
def test_a_value_that_fits_is_read_by_any_reader_and_comes_back_as_it_was_sent(
    seeds: range,
) -> None:
    for seed in seeds:
        made = Made(seed)
        schema = avro_schema(json.dumps(made.schema))
        assert lenient(schema, made.value) == made.value
        source = io.BytesIO(schema.take(json.dumps(made.value).encode(), BodyForm.JSON, {}))
        fastavro.schemaless_reader(source, fastavro.parse_schema(made.schema), None)
        assert source.read() == b""


@given(st.integers(0, 1_000), st.sampled_from(BodyForm), st.binary(max_size=60))
def test_any_bytes_become_avro_or_are_refused(seed: int, form: BodyForm, body: bytes) -> None:
    schema = avro_schema(json.dumps(Made(seed).schema))
    # Anything else that is raised fails the test.
    with suppress(Refused):
        assert type(schema.take(body, form, TOLD)) is bytes
    with suppress(UndecodableAvro):
        assert type(json.loads(schema.to_json(body))) is dict


# Hermes' own texts and rules.


def test_a_wrong_type_is_told_in_hermes_words() -> None:
    schema = schema_of(field("int"))
    told = "Invalid message: Failed to convert JSON to Avro: Field age is expected to be type: "
    assert refusal(schema, b'{"age": "x"}') == told + "java.lang.Number"
    told = "Invalid message: Failed to convert to AVRO: Expected int. Got VALUE_STRING."
    assert refusal(schema, b'{"age": "x"}', BodyForm.AVRO_JSON) == told


@pytest.mark.parametrize(
    ("kind", "value", "java"),
    [
        ("string", 1, "java.lang.String"),
        ("bytes", 1, "java.lang.String"),
        ("boolean", "true", "java.lang.Boolean"),
        ("double", True, "java.lang.Number"),
        ({"type": "map", "values": "int"}, [], "java.util.Map"),
        ({"type": "array", "items": "int"}, {}, "java.util.Collection"),
    ],
)
def test_each_type_is_named_as_java_does(kind: Any, value: Any, java: str) -> None:
    told = refusal(schema_of(field(kind)), json.dumps({"age": value}).encode())
    assert told.endswith(f"Field age is expected to be type: {java}")


def test_the_path_of_a_field_leads_through_arrays_and_maps() -> None:
    below = {"type": "record", "name": "B", "fields": [field("int", "x")]}
    schema = schema_of(field({"type": "array", "items": {"type": "map", "values": below}}, "a"))
    assert "Field a[1].k.x is" in refusal(schema, b'{"a":[{},{"k":{"x":"no"}}]}')


def test_what_is_missing_has_its_default_and_what_is_unknown_is_left_out() -> None:
    schema = schema_of(field("int", default=7), field("string", "name"))
    assert lenient(schema, {"name": "x", "more": 1}) == {"age": 7, "name": "x"}
    told = refusal(schema, b'{"age": 1}')
    assert told.startswith("Invalid message: Failed to convert JSON to Avro")
    assert "Field name is missing" in told


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        ("int", 1.9, 1),
        ("int", -1.9, -1),
        ("int", 2**31, -(2**31)),
        ("int", 1e20, 2**31 - 1),
        ("long", 2**63, -(2**63)),
        ("long", -1e300, -(2**63)),
        ("double", 3, 3.0),
        ("float", 0.1, 0.1),
        ("float", 1e39, "Infinity"),
        ("double", 10**400, "Infinity"),
    ],
)
def test_numbers_are_narrowed_as_java_does(kind: str, value: float, stored: Any) -> None:
    assert lenient(schema_of(field(kind)), {"age": value}) == {"age": stored}


@given(st.integers(-(2**80), 2**80), st.sampled_from([32, 64]))
def test_a_narrowed_integer_wraps(value: int, bits: int) -> None:
    found = narrowed(value, bits)
    assert -(2 ** (bits - 1)) <= found < 2 ** (bits - 1)
    assert (found - value) % 2**bits == 0


def test_of_a_union_the_first_branch_that_fits_is_taken() -> None:
    assert lenient(schema_of(field(["int", "long"])), {"age": 2**40 + 1}) == {"age": 1}
    assert lenient(schema_of(field(["null", "long"])), {"age": None}) == {"age": None}
    told = refusal(schema_of(field(["null", "int", "string"])), b'{"age": true}')
    assert "Field age is expected to be one of these: null, int, string" in told


def test_an_enum_takes_its_symbols_only() -> None:
    schema = schema_of(field({"type": "enum", "name": "E", "symbols": ["A", "B"]}))
    assert lenient(schema, {"age": "A"}) == {"age": "A"}
    assert "one of A, B" in refusal(schema, b'{"age": "C"}')


def test_bytes_come_from_utf8_and_go_as_iso_8859_1() -> None:
    assert lenient(schema_of(field("bytes")), {"age": "é"}) == {"age": "Ã©"}


def test_fixed_is_for_avros_own_json() -> None:
    schema = schema_of(field({"type": "fixed", "name": "F", "size": 2}))
    assert "send avro/json" in refusal(schema, b'{"age": "ab"}')
    stored = schema.take('{"age": "aÿ"}'.encode(), BodyForm.AVRO_JSON, {})
    assert json.loads(schema.to_json(stored)) == {"age": "aÿ"}
    assert "length 2, but got 3" in refusal(schema, b'{"age": "abc"}', BodyForm.AVRO_JSON)


@pytest.mark.parametrize(
    ("base", "logical", "value", "stored"),
    [
        ("int", "date", "1970-01-05", 4),
        ("int", "date", 4, 4),
        ("long", "timestamp-millis", "1970-01-01T00:00:01.5Z", 1500),
        ("long", "timestamp-millis", "1970-01-01T01:00:00+01:00", 0),
        ("long", "timestamp-micros", "1970-01-01T00:00:01Z", 1_000_000),
        ("int", "time-millis", "00:00:01.5", 1500),
        ("long", "time-micros", "01:00:00", 3_600_000_000),
        ("bytes", "decimal", "12.34", "\x04Ò"),
        ("bytes", "decimal", 12.34, "\x04Ò"),
        ("bytes", "decimal", -1, "\x9c"),
        ("string", "uuid", "x", "x"),
    ],
)
def test_logical_types_come_from_texts_and_numbers_and_go_as_they_are_stored(
    base: str, logical: str, value: Any, stored: Any
) -> None:
    kind = {"type": base, "logicalType": logical, "precision": 6, "scale": 2}
    assert lenient(schema_of(field(kind)), {"age": value}) == {"age": stored}


@pytest.mark.parametrize(
    ("base", "logical", "value"),
    [
        ("int", "date", "tomorrow"),
        ("long", "timestamp-millis", "noon"),
        ("int", "time-millis", ""),
        ("bytes", "decimal", "1.234"),
        ("bytes", "decimal", "12345678"),
        ("bytes", "decimal", "1e999"),
        ("bytes", "decimal", True),
    ],
)
def test_what_is_no_such_moment_or_decimal_is_refused(base: str, logical: str, value: Any) -> None:
    kind = {"type": base, "logicalType": logical, "precision": 6, "scale": 2}
    told = refusal(schema_of(field(kind)), json.dumps({"age": value}).encode())
    assert "Field age: a" in told or "Field age: the decimal" in told


# Metadata.


def test_the_brokers_metadata_stands_whatever_the_publisher_put_there() -> None:
    schema = schema_of(field("int"), has_metadata=True)
    binary = schema.take(b'{"age": 1}', BodyForm.JSON, {"messageId": "forged"})
    for form, body in (
        (BodyForm.JSON, b'{"age": 1, "__metadata": {"messageId": "forged"}}'),
        (BodyForm.AVRO_JSON, b'{"age": 1, "__metadata": {"map": {"messageId": "forged"}}}'),
        (BodyForm.AVRO_BINARY, binary),
    ):
        stored = schema.take(body, form, TOLD)
        assert schema.document(stored) == {"__metadata": TOLD, "age": 1}
        assert json.loads(schema.to_json(stored)) == {"age": 1}
        assert json.loads(schema.to_json(stored, keeps_metadata=True))["__metadata"] == TOLD


def test_avros_own_json_names_each_field_and_each_branch() -> None:
    schema = schema_of(field(["null", "int"]), has_metadata=True)
    told = refusal(schema, b'{"age": {"int": 1}}', BodyForm.AVRO_JSON)
    assert "Expected field name not found: __metadata" in told
    body = b'{"__metadata": null, "age": {"int": 1}}'
    assert schema.document(schema.take(body, BodyForm.AVRO_JSON, TOLD))["age"] == 1
    told = refusal(schema, b'{"__metadata": null, "age": 1}', BodyForm.AVRO_JSON)
    assert "Expected start-union. Got VALUE_NUMBER_INT." in told


def test_binary_without_metadata_is_stored_unseen() -> None:
    assert schema_of(field("int")).take(b"\xff", BodyForm.AVRO_BINARY, TOLD) == b"\xff"
    told = refusal(schema_of(field("int"), has_metadata=True), b"\xff", BodyForm.AVRO_BINARY)
    assert told.startswith("Invalid message: Failed to convert to AVRO")


@pytest.mark.parametrize(
    "kind",
    [
        "string",
        {"type": "map", "values": "string"},
        ["null", {"type": "map", "values": "int"}],
        [{"type": "map", "values": "string"}, "null"],
    ],
)
def test_a_field_of_another_kind_is_no_metadata(kind: Any) -> None:
    assert not schema_of(field(kind, "__metadata")).has_metadata


# Schemas.


NO_FIELDS = [
    '"nothing"',
    '{"type": "map"}',
    '"int", "default": "x"',
    '["int", ["string"]]',
    "[]",
]
NO_SCHEMAS = [
    "",
    "{",
    "1",
    '"string"',
    '["null", "int"]',
    '{"type": "record"}',
    '{"type": "record", "name": "T"}',
    # What fastavro would believe.
    (
        '{"type": "record", "name": "T", "fields": [{"name": "a", "type": "X"}], '
        '"__fastavro_parsed": true, "__named_schemas": {"X": 5}}'
    ),
    "[" * 5_000,
    *(
        '{"type": "record", "name": "T", "fields": [{"name": "a", "type": ' + each + "}]}"
        for each in NO_FIELDS
    ),
]


@pytest.mark.parametrize("text", NO_SCHEMAS)
def test_what_is_no_schema_of_messages_is_told_so(text: str) -> None:
    with pytest.raises(Refused) as caught:
        avro_schema(text)
    assert caught.value.code is ErrorCode.FORMAT_ERROR
    assert caught.value.message.startswith("The schema is not an Avro schema: ")


def test_a_record_may_hold_itself_where_it_can_end() -> None:
    node = {"type": "record", "name": "N", "fields": [field(["null", "N"], "next", default=None)]}
    schema = avro_schema(json.dumps(node))
    assert lenient(schema, {"next": {"next": {}}}) == {"next": {"next": {"next": None}}}


def test_defaults_that_fill_each_other_without_end_are_refused() -> None:
    kind = {"type": "record", "name": "N", "fields": [field(["N", "null"], "n", default={})]}
    with pytest.raises(Refused, match="has no end"):
        schema_of(field(kind))


# Bounds of one message.


def test_binary_is_stored_as_it_came_but_for_its_metadata() -> None:
    schema = schema_of(field("double"), field("string", "b"), has_metadata=True)
    # A number that is none, with bits of its own, and a length in two bytes where one would do.
    rest = b"\x01\x00\x00\x00\x00\x00\xf8\x7f" + b"\x82\x00" + b"x"
    stored = schema.take(b"\x00" + rest, BodyForm.AVRO_BINARY, TOLD)
    assert stored.endswith(rest)
    assert schema.document(stored) == {"__metadata": TOLD, "age": "NaN", "b": "x"}


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02"),
        (["null", "int"], b"\x04"),
        ("string", b"\x01"),
        ("string", b"\x02\xff"),
        ("bytes", b"\x09abc"),
        ("double", b"\x00" * 7),
        ("int", b""),
        ("int", b"\x02\x02"),
        ({"type": "array", "items": "int"}, b"\xfe\xff\xff\xff\x0f"),
        ({"type": "map", "values": "int"}, b"\xff" * 9 + b"\x01" + b"\x00"),
        ({"type": "fixed", "name": "F", "size": 3}, b"ab"),
    ],
)
def test_bytes_that_end_too_early_or_too_late_or_are_no_such_value_are_not_read(
    kind: Any, body: bytes
) -> None:
    with pytest.raises(UndecodableAvro):
        schema_of(field(kind)).document(body)


def test_an_array_in_blocks_with_their_sizes_is_read() -> None:
    schema = schema_of(field({"type": "array", "items": "int"}))
    assert schema.document(b"\x01\x02\x02" + b"\x04\x04\x06" + b"\x00") == {"age": [1, 2, 3]}
