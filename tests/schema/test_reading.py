"""What a node knows of the schemas of stored messages, and what it shows of them."""

import json

import pytest

from hermes_actors.config import PreviewConfig
from hermes_actors.model.message import Message
from hermes_actors.model.schema import WriterSchema
from hermes_actors.runtime.workers import InlinePool
from hermes_actors.schema.reading import AvroReader
from hermes_actors.status.previews import Previews
from tests.consumer.avro_scene import NAMED, PLAIN, TOPIC, HandSource, avro


@pytest.fixture
def source():
    source = HandSource()
    source.add(1, 11, PLAIN)
    source.add(2, 22, NAMED)
    return source


def message_of(body, version, schema_id):
    return Message("m", body, 5, dc="dc1", written_with=WriterSchema(version, schema_id))


def test_a_preview_is_json_and_cut_only_then(source):
    reader = AvroReader(source, InlinePool())
    previews = Previews(PreviewConfig(enabled=True, message_bytes_max=200))
    bodies = [avro(NAMED, n=1, name="x"), avro(NAMED, n=2, name="y" * 1_000), b"\xff"]
    for body in bodies:
        previews.add("log", reader.readable(TOPIC, message_of(body, 2, 22)))
    whole, cut, broken = previews.take_all()["log"]
    assert json.loads(whole.content)["message"] == {"n": 1, "name": "x"}
    assert cut.is_truncated
    assert b'"message":{"n":2,"name":"yyy' in cut.content
    assert json.loads(broken.content)["message"]["bodyBase64"] == "/w=="
