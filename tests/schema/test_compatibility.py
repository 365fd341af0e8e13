"""Avro's own rules on who can read what, judged by Apache's library."""

import json
from typing import Any

import pytest

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.schema.compatibility import REASONS_MAX, require_avro, why_unreadable


def record(*fields: dict[str, Any], name: str = "r") -> str:
    return json.dumps({"type": "record", "name": name, "fields": fields})


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


AGE = field("age", "int")


@pytest.mark.parametrize(
    ("reader", "writer", "words"),
    [
        (record(AGE), record(AGE), ""),
        (record(AGE), record(AGE, field("note", "string")), ""),
        (record(AGE, field("note", "string", default="")), record(AGE), ""),
        (record(AGE, field("note", "string")), record(AGE), "note at /fields/1"),
        (record(field("age", "long")), record(AGE), ""),
        (record(AGE), record(field("age", "long")), "reader type: int"),
        (record(field("years", "int", aliases=["age"])), record(AGE), ""),
        (record(field("age", ["null", "int"])), record(AGE), ""),
        (record(AGE), record(field("age", ["null", "int"])), "reader type: int"),
        ('{"type":"enum","name":"e","symbols":["A"]}',) * 2 + ("",),
        (
            '{"type":"enum","name":"e","symbols":["A"]}',
            '{"type":"enum","name":"e","symbols":["A","B"]}',
            "missing_enum_symbols",
        ),
        (record(AGE), record(AGE, name="other"), "name_mismatch"),
        ('"string"', '"bytes"', ""),
        ('"string"', '"int"', "type_mismatch"),
    ],
)
def test_a_reader_is_told_why_it_cannot_read(reader, writer, words):
    why = why_unreadable(reader, writer)
    assert bool(why) == bool(words)
    assert words in why


def test_a_type_that_holds_itself_is_compared_too():
    tree = record(AGE, field("next", ["null", "r"], default=None))
    wider = record(AGE, field("next", ["null", "r"], default=None), field("b", "int"))
    assert why_unreadable(tree, tree) == ""
    assert "b at " in why_unreadable(wider, tree)


def test_only_so_many_reasons_are_told():
    many = record(*(field(f"f{at}", "int") for at in range(50)))
    why = why_unreadable(many, record(AGE))
    assert why.count("/fields/") == REASONS_MAX
    assert "and more" in why


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "5",
        "[[]]",
        '"Unknown"',
        record(AGE, name="$r"),
        record(AGE, name="a/b"),
        record(AGE, AGE),
        record(field("a", json.loads(record(AGE)))),
        '{"type":"array","items":' * 2_000 + '"int"' + "}" * 2_000,
        "[" * 262_144,
    ],
)
def test_what_is_no_avro_schema_is_refused_with_the_reason(text):
    with pytest.raises(Refused, match=r"^The schema is not an Avro schema: .") as refused:
        require_avro(text)
    assert refused.value.code is ErrorCode.FORMAT_ERROR
    assert len(refused.value.message) < 300
    assert why_unreadable(text, '"int"').startswith("this cannot be determined: ")


def test_names_with_dots_are_full_names():
    require_avro(record(AGE, name="com.example.Visit"))
    assert why_unreadable(record(AGE, name="com.example.r"), record(AGE, name="r")) == ""
