"""What a node knows of the schemas of stored messages, and what it shows of them."""

import pytest

from hermes_actors.model.message import Message
from hermes_actors.model.schema import WriterSchema
from hermes_actors.runtime.workers import InlinePool
from hermes_actors.schema.reading import AvroReader
from tests.consumer.avro_scene import NAMED, PLAIN, TOPIC, HandSource, avro, schema_text


@pytest.fixture
def source():
    source = HandSource()
    source.add(1, 11, PLAIN)
    source.add(2, 22, NAMED)
    return source


def message_of(body, version, schema_id):
    return Message("m", body, 5, dc="dc1", written_with=WriterSchema(version, schema_id))


def test_a_thousand_versions_are_compiled_once_each_and_looked_up_by_id(source):
    many = 1_000
    for number in range(1, many + 1):
        source.add(number, 1_000 + number, schema_text(name=f"V{number}"))
    reader = AvroReader(source, InlinePool())
    body = avro(PLAIN, n=1)
    messages = [message_of(body, number, 1_000 + number) for number in range(1, many + 1)]
    for each in messages:
        assert reader.soon_shown(TOPIC, each).json == b'{"n":1}'
    first = reader.schema(source.versions[1].schema.text)
    for each in messages:
        reader.soon_shown(TOPIC, each)
    assert reader.schema(source.versions[1].schema.text) is first
