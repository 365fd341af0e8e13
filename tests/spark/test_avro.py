"""Messages in Avro, as Spark's own reader of Avro takes them from the rows of a job."""

import json

from hermes_actors.model.message import Message, to_record
from hermes_actors.model.schema import WriterSchema
from hermes_actors.schema.avro import BodyForm, avro_schema
from hermes_spark.snapshot import Datacentre, EmbeddedLog
from hermes_spark.sources import stored
from hermes_spark.taking import take_snapshot
from tests.spark.stored_scene import fill_embedded

METADATA = {
    "name": "__metadata",
    "type": ["null", {"type": "map", "values": "string"}],
    "default": None,
}
FIELDS = [METADATA, {"name": "age", "type": "int"}, {"name": "name", "type": ["null", "string"]}]
SCHEMA = json.dumps({"type": "record", "name": "User", "fields": FIELDS})


def user(number: int, framing: bytes = b""):
    body = json.dumps({"age": number, "name": f"user {number}"}).encode()
    stored_body = avro_schema(SCHEMA).take(body, BodyForm.JSON, {"messageId": f"id-{number}"})
    written_with = WriterSchema(3, 258, is_framed=bool(framing))
    message = Message(f"id-{number}", framing + stored_body, 5, dc="dc1", written_with=written_with)
    return to_record(message)


def test_spark_reads_bare_and_framed_avro_and_knows_its_schema(spark, tmp_path):
    from pyspark.sql import functions as f
    from pyspark.sql.avro.functions import from_avro

    users = [user(1), user(2, b"\0\0\0\1\2")]
    fill_embedded(tmp_path, {"shop.users": [users]})
    described = {"dc1": Datacentre(EmbeddedLog(str(tmp_path)))}
    rows = stored(spark, take_snapshot(described, 0, lambda: spark))
    headers = f.map_from_entries("headers")
    start = f.when(f.try_element_at(headers, f.lit("framing")).isNotNull(), 6).otherwise(1)
    bare = f.expr("substring(value, start)")
    read = rows.withColumn("start", start).select(
        "message_id",
        f.conv(f.hex(f.try_element_at(headers, f.lit("sv"))), 16, 10).alias("version"),
        from_avro(bare, SCHEMA).alias("user"),
    )
    found = sorted(
        (row.message_id, row.version, row.user.age, row.user["__metadata"]["messageId"])
        for row in read.collect()
    )
    assert found == [("id-1", "3", 1, "id-1"), ("id-2", "3", 2, "id-2")]
