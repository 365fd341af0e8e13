"""What a node knows of the schemas of stored messages, and what it shows of them."""

import json

import pytest

from hermes_actors.config import PreviewConfig
from hermes_actors.model.message import Message
from hermes_actors.model.schema import WriterSchema
from hermes_actors.schema.compiled import CompiledSchemas
from hermes_actors.schema.reading import AvroReader
from hermes_actors.status.previews import Previews
from tests.consumer.avro_scene import NAMED, PLAIN, TOPIC, HandSource, avro, schema_text


@pytest.fixture
def source():
    source = HandSource()
    source.add(1, 11, PLAIN)
    source.add(2, 22, NAMED)
    return source


def message_of(body, version, schema_id):
    return Message("m", body, 5, dc="dc1", written_with=WriterSchema(version, schema_id))


def test_a_preview_is_json_and_cut_only_then(source):
    reader = AvroReader(source, CompiledSchemas())
    previews = Previews(PreviewConfig(enabled=True, message_bytes_max=200))
    bodies = [avro(NAMED, n=1, name="x"), avro(NAMED, n=2, name="y" * 1_000), b"\xff"]
    for body in bodies:
        previews.add("log", reader.readable(TOPIC, message_of(body, 2, 22)))
    whole, cut, broken = previews.take_all()["log"]
    assert json.loads(whole.content)["message"] == {"n": 1, "name": "x"}
    assert cut.is_truncated
    assert b'"message":{"n":2,"name":"yyy' in cut.content
    assert json.loads(broken.content)["message"]["bodyBase64"] == "/w=="


def test_a_thousand_versions_are_compiled_once_each_and_looked_up_by_id(source):
    many = 1_000
    for number in range(1, many + 1):
        source.add(number, 1_000 + number, schema_text(name=f"V{number}"))
    reader = AvroReader(source, CompiledSchemas())
    body = avro(PLAIN, n=1)
    messages = [message_of(body, number, 1_000 + number) for number in range(1, many + 1)]
    for each in messages:
        assert reader.soon_shown(TOPIC, each).json == b'{"n":1}'
    first = reader.schema(source.versions[1].schema.text)
    for each in messages:
        reader.soon_shown(TOPIC, each)
    assert reader.schema(source.versions[1].schema.text) is first


@pytest.mark.slow
def test_large_schemas_in_turn_are_compiled_once_and_then_used_beside_the_loop():
    many, rounds = 40, 3
    padding = {"name": "p", "type": "int", "doc": "x" * 60_000}
    texts = [schema_text(padding, name=f"V{number}") for number in range(many)]
    compiled, compilations = CompiledSchemas(), 0
    for _ in range(rounds):
        for text in texts:
            before = compiled.loop_bytes_max(text)
            compilations += before > 0
    assert compilations < 1.9 * many
    small = [schema_text(name=f"S{number}") for number in range(1_500)]
    for text in small * 2:
        assert compiled.loop_bytes_max(text) > 0


@pytest.mark.parametrize(
    "fields",
    [
        # Each byte makes a name of 60,000 characters, or a symbol.
        [
            {
                "name": "a",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "R",
                        "fields": [{"name": "x" * 60_000, "type": "int"}],
                    },
                },
            }
        ],
        [
            {
                "name": "a",
                "type": {
                    "type": "array",
                    "items": {"type": "enum", "name": "E", "symbols": ["x" * 60_000]},
                },
            }
        ],
        # And with each, many values that take none.
        [
            {
                "name": "a",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "R",
                        "fields": [
                            {"name": "i", "type": "int"},
                            *[{"name": f"n{n}", "type": "null"} for n in range(400)],
                        ],
                    },
                },
            }
        ],
    ],
)
def test_what_grows_much_is_soon_read_only_while_it_is_short(fields):
    source = HandSource()
    text = schema_text(*fields)
    source.add(1, 11, text)
    reader = AvroReader(source, CompiledSchemas())
    reader.soon_shown(TOPIC, message_of(b"", 1, 11))
    items = 2_000
    while True:
        one = json.loads(text)["fields"][2]["type"]["items"]
        empty = one["symbols"][0] if one["type"] == "enum" else {}
        value = empty or {
            field["name"]: 0 if field["type"] == "int" else None for field in one["fields"]
        }
        body = avro(text, n=0, a=[value] * items)
        if reader.is_soon_read(text, body):
            break
        items //= 2
    shown = reader.soon_shown(TOPIC, message_of(body, 1, 11))
    assert len(shown.json) < 4_000_000
