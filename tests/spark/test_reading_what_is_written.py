"""The embedded log's source beside a node that writes: in batch, and as a stream."""

import threading
from contextlib import closing

import pytest

from hermes_actors.log.embedded.opening import open_store
from hermes_spark.columns import schema_of
from hermes_spark.snapshot import Datacentre, EmbeddedLog
from hermes_spark.sources import stored
from hermes_spark.taking import take_snapshot
from tests.spark.stored_scene import fill_embedded, native


def offsets(rows):
    return sorted(row.offset for row in rows)


def test_a_snapshot_is_read_whole_while_a_node_appends_to_the_file(spark, tmp_path):
    fill_embedded(tmp_path, {"shop.orders": [[native(n) for n in range(500)]]})
    stop = threading.Event()
    appended = []

    def append():
        with closing(open_store(tmp_path, accepts_damage=False)) as store:
            while not stop.is_set() and len(appended) < 20_000:
                store.begin()
                store.append("shop.orders", 0, [native(500 + len(appended))], 0, 0.0)
                store.flush()
                store.commit()
                appended.append(1)

    node = threading.Thread(target=append)
    node.start()
    try:
        described = {"dc1": Datacentre(EmbeddedLog(str(tmp_path)))}
        snapshot = take_snapshot(described, 0, lambda: spark)
        rows = stored(spark, snapshot, columns=["offset", "message_id"])
        first, second = rows.collect(), rows.collect()
    finally:
        stop.set()
        node.join()
    held = snapshot.datacentres["dc1"].records
    assert 500 <= held < 500 + len(appended)
    assert offsets(first) == list(range(held))
    assert sorted(first) == sorted(second)
    assert {row.message_id for row in first} == {f"id-{n}" for n in range(held)}


@pytest.fixture
def stream(spark, tmp_path):
    """Runs a query over what is there by now, and returns all offsets that it has written yet."""
    # Registers the source.
    fill_embedded(tmp_path / "log", {"shop.orders": [[]], "shop.bills": [[native(0)]]})
    described = {"dc1": Datacentre(EmbeddedLog(str(tmp_path / "log")))}
    stored(spark, take_snapshot(described, 0, lambda: spark))

    def run(**options):
        rows = (
            spark.readStream.format("hermes_embedded")
            .schema(schema_of(["topic", "offset", "message_id"]))
            .options(dc="dc1", folder=str(tmp_path / "log"), **options)
            .load()
        )
        query = (
            rows.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .option("path", str(tmp_path / "out"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(60)
        found = spark.read.parquet(str(tmp_path / "out"))
        return sorted((row.topic, row.offset, row.message_id) for row in found.collect())

    return run


def test_a_stream_goes_on_where_it_was_and_takes_each_record_once(stream, tmp_path):
    log = tmp_path / "log"
    fill_embedded(log, {"shop.orders": [[native(n) for n in range(3)]]})
    assert stream() == [
        ("shop.bills", 0, "id-0"),
        *(("shop.orders", n, f"id-{n}") for n in range(3)),
    ]
    fill_embedded(log, {"shop.orders": [[native(3)]], "shop.later": [[native(9)], [native(8)]]})
    assert stream() == [
        ("shop.bills", 0, "id-0"),
        ("shop.later", 0, "id-8"),
        ("shop.later", 0, "id-9"),
        *(("shop.orders", n, f"id-{n}") for n in range(4)),
    ]


def test_a_stream_follows_the_topics_that_it_names(stream, tmp_path):
    fill_embedded(tmp_path / "log", {"shop.orders": [[native(1)]]})
    assert stream(topics='["shop.orders"]') == [("shop.orders", 0, "id-1")]
