"""What a node knows of the schemas of stored messages, and what it shows of them."""

import pytest

from hermes_actors.model.message import Message
from hermes_actors.model.schema import WriterSchema
from tests.consumer.avro_scene import NAMED, PLAIN, HandSource


@pytest.fixture
def source():
    source = HandSource()
    source.add(1, 11, PLAIN)
    source.add(2, 22, NAMED)
    return source


def message_of(body, version, schema_id):
    return Message("m", body, 5, dc="dc1", written_with=WriterSchema(version, schema_id))
