"""A consumer's world whose topic holds Avro, with hand-written schemas."""

import io
import json

import fastavro
import msgspec

from hermes_actors.model.message import Message, to_record
from hermes_actors.model.record import Record
from hermes_actors.model.schema import Schema, SchemaKind, WriterSchema
from hermes_actors.model.topic import Ack, ContentType
from hermes_actors.runtime.workers import InlinePool
from hermes_actors.schema.reading import AvroReader
from hermes_actors.schema.source import SchemaVersion

TOPIC = "shop.orders"
METADATA = {"name": "__metadata", "type": ["null", {"type": "map", "values": "string"}]}


def schema_text(*fields, name="Order"):
    """A record's schema: `__metadata`, an int `n`, and these fields."""
    return json.dumps(
        {
            "type": "record",
            "name": name,
            "fields": [{**METADATA, "default": None}, {"name": "n", "type": "int"}, *fields],
        }
    )


PLAIN = schema_text()
NAMED = schema_text({"name": "name", "type": "string"})


def avro(text, **values):
    """A body with that schema."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(json.loads(text)), values)
    return body.getvalue()


class HandSource:
    """Hand-written schemas; `asked` counts the look-ups."""

    def __init__(self):
        self.versions = {}
        self.others = {}
        self.asked = 0
        # Why it cannot be asked.
        self.trouble = ""

    def lack(self, _subject):
        return ""

    def doubt(self, _subject, _version):
        return self.trouble

    def add(self, number, schema_id, text, kind=SchemaKind.AVRO):
        self.versions[number] = SchemaVersion(number, schema_id, Schema(kind, text))

    def versions_of(self, subject):
        return self.versions if subject == TOPIC else {}

    def by_id(self, schema_id):
        for each in self.versions.values():
            if each.id == schema_id:
                return each.schema
        return self.others.get(schema_id)

    def ask(self, subject, done):
        self.asked += 1
        done()


class Avro:
    """A test's actions on the world's Avro topic."""

    def __init__(self, world, pool=None):
        self.world = world
        self.source = HandSource()
        pool = pool or InlinePool()
        reader = AvroReader(self.source, pool)
        world.parts = msgspec.structs.replace(world.parts, avro=reader, pool=pool)

    def live(self, taken=ContentType.JSON, **fields):
        return self.world.live(content_type=taken, **fields)

    def consuming(self, live=None, *, topic=ContentType.AVRO, **arguments):
        live = live or self.live()
        return self.world.consuming(live, topic_content=topic, keeps_letters=True, **arguments)

    async def publish(self, body, version, schema_id, *, partition=0, **fields):
        """Store a message as our nodes do."""
        message = Message(
            id=f"id-{version}",
            body=body,
            published_at_ms=self.world.clock.now_ms(),
            dc="dc1",
            written_with=WriterSchema(version, schema_id, fields.pop("is_framed", False)),
            **fields,
        )
        await self.append(to_record(message), partition)

    async def append(self, record, partition=0):
        if isinstance(record, bytes):
            record = Record(None, record, (), self.world.clock.now_ms())
        await self.world.log.append(self.world.topic, partition, [record], Ack.LEADER)

    @property
    def bodies(self):
        return self.world.sender.bodies

    def headers(self, number=0):
        lines = self.world.sender.pushes[number].lines.decode().split("\r\n")
        return dict(line.split(": ", 1) for line in lines if line)
