"""Messages against JSON Schemas: what is taken, and what is said of what is not."""

import json
from contextlib import suppress

import pytest

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.schema.json_schema import ERRORS_MAX, JsonSchema, can_read

ORDER = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "lines": {
            "type": "array",
            "items": {"properties": {"count": {"type": "integer", "minimum": 1}}},
        },
        "state": {"enum": ["new", "paid"]},
        "code": {"pattern": "^[A-Z]+$"},
        "note": {"type": ["string", "null"], "maxLength": 5},
    },
    "required": ["id"],
    "additionalProperties": False,
}


def checked(schema: object, message: object) -> str:
    body = json.dumps(message).encode()
    try:
        assert JsonSchema(json.dumps(schema)).take(body) == body
    except Refused as error:
        return f"{error.code.name} {error.message}"
    return ""


def test_a_message_that_fits_is_taken():
    assert checked(ORDER, {"id": "a", "lines": [{"count": 2}], "state": "new", "note": None}) == ""


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({}, "id is missing"),
        ({"id": 5}, "id must be a string, not a number"),
        ({"id": "a", "lines": {}}, "lines must be an array, not an object"),
        (
            {"id": "a", "lines": [{}, {"count": "x"}]},
            "lines[1].count must be an integer, not a string",
        ),
        (
            {"id": "a", "lines": [{"count": 0}]},
            "lines[0].count breaks the rule minimum 1; it is a number",
        ),
        ({"id": "a", "state": True}, 'state breaks the rule enum ["new","paid"]; it is a boolean'),
        ({"id": "a", "code": "x"}, 'code breaks the rule pattern "^[A-Z]+$"; it is a string'),
        ({"id": "a", "note": 5}, "note must be null or a string, not a number"),
        ({"id": "a", "note": "secret"}, "note breaks the rule maxLength 5; it is a string"),
        ({"id": "a", "x": 1}, "x is not allowed: the schema names no such field"),
        ([], "the message must be an object, not an array"),
    ],
)
def test_the_error_names_the_field_the_rule_and_the_kind_of_value(message, reason):
    assert checked(ORDER, message) == f"VALIDATION_ERROR Invalid message: {reason}"


def test_all_errors_are_listed_up_to_a_bound():
    two = checked(ORDER, {"id": 1, "note": 1})
    assert "id must be" in two
    assert "note must be" in two
    schema = {"items": {"type": "string"}}
    assert checked(schema, [1] * ERRORS_MAX).count("must be") == ERRORS_MAX
    many = checked(schema, [1] * (ERRORS_MAX + 1))
    assert many.count("must be") == ERRORS_MAX
    assert many.endswith("and more")


def test_of_a_large_message_the_first_error_is_told():
    assert checked({"items": {"type": "string"}}, [1] * 10_000).count("must be") == 1


def test_no_value_of_a_message_is_in_its_error():
    message = {"id": "hunter2", "code": "hunter2", "note": "hunter2", "state": "hunter2"}
    assert "hunter2" not in checked(ORDER, message)


@pytest.mark.parametrize("body", [b"", b"{", b'{"id": "a"', b"\xff", b"[" * 100_000, b"1" * 5_000])
def test_what_is_no_json_is_refused(body):
    with pytest.raises(Refused, match=r"^Invalid message: it is not valid JSON"):
        JsonSchema(json.dumps(ORDER)).take(body)


def test_a_message_nested_as_deep_as_json_may_be_is_checked_or_refused():
    schema = {"$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"}
    compiled = JsonSchema(json.dumps(schema))
    for depth in (100, 200, 400, 800):
        with suppress(Refused):
            compiled.take(b"[" * depth + b"]" * depth)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not valid JSON"),
        ("[]", "must be an object, or true or false, not an array"),
        ('{"type": "record", "name": "a", "fields": []}', "type"),
        ('{"properties": {"a": {"type": "strin"}}}', "properties.a.type"),
        ('{"pattern": "(?=a)b"}', "pattern"),
        ('{"pattern": "(a{1,1000}){1,1000}"}', "pattern"),
        ('{"$ref": "http://elsewhere.test/a.json"}', "elsewhere.test"),
        ('{"$ref": "#/$defs/nowhere"}', "nowhere"),
    ],
)
def test_what_is_no_schema_is_refused_with_the_place(text, reason):
    with pytest.raises(Refused) as caught:
        JsonSchema(text)
    assert caught.value.code is ErrorCode.FORMAT_ERROR
    assert reason in caught.value.message


def test_an_earlier_draft_is_taken_where_the_schema_names_it():
    draft4 = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "minimum": 1,
        "exclusiveMinimum": True,
    }
    assert checked(draft4, 1) != ""
    assert checked(draft4, 2) == ""


A = {"a": {"type": "integer"}}
CLOSED = {"type": "object", "properties": A, "additionalProperties": False}
WIDER = {"type": "object", "properties": {**A, "b": {}}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("reader", "writer", "expected"),
    [
        (CLOSED, CLOSED, True),
        (WIDER, CLOSED, True),
        (CLOSED, WIDER, False),
        ({"type": "number"}, {"type": "integer"}, True),
        ({"type": "integer"}, {"type": "number"}, False),
        ({"required": ["a", "b"]}, {"required": ["a"]}, False),
        (True, {"type": "null"}, True),
        ({"enum": [1, 2, 3]}, {"enum": [1, 2]}, True),
        ({}, {"$schema": "http://json-schema.org/draft-04/schema#"}, False),
    ],
)
def test_a_reader_takes_all_that_a_writer_may_write(reader, writer, expected):
    assert can_read(json.dumps(reader), json.dumps(writer)) is expected
