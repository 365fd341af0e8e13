"""Both logs give the same rows for the same records, and exactly those that a snapshot names."""

import asyncio  # noqa: TID251 -- the other producers
import sqlite3
from contextlib import closing

import pytest
from aiokafka import AIOKafkaProducer

from hermes_actors.log.embedded.opening import open_store
from hermes_actors.log.embedded.schema import FILE_NAME
from hermes_spark.columns import COLUMNS
from hermes_spark.snapshot import Datacentre, EmbeddedLog, KafkaLog, PartitionRange, Snapshot
from hermes_spark.sources import stored
from hermes_spark.sources.failures import SourceFailed
from hermes_spark.taking import take_snapshot
from tests.spark.stored_scene import ODD, T0_MS, fill_embedded, fill_kafka, native

TOPICS = {
    "shop.orders": [[record for record, _ in ODD], [], [native(100 + n) for n in range(25)]],
    "shop.empty": [[], []],
    "_hermes.dlq.shop": [[native(7)]],
}
SAID = {id(record): said for record, said in ODD} | {
    id(record): (dict(record.headers)["id"].decode(), "dc2", "local")
    for records in (TOPICS["shop.orders"][2], TOPICS["_hermes.dlq.shop"][0])
    for record in records
}
"""What the id, the publisher's datacentre and the way of each record are to be."""


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def filled(request, spark, tmp_path):
    """A snapshot of `TOPICS` in one datacentre."""
    if request.param == "embedded":
        fill_embedded(tmp_path, TOPICS, chunk_records=4)
        described = Datacentre(EmbeddedLog(str(tmp_path)))
    else:
        servers = request.getfixturevalue("kafka_cluster").bootstrap_servers
        namespace = tmp_path.name.replace("_", "-")
        fill_kafka(servers, f"{namespace}_", TOPICS)
        described = Datacentre(KafkaLog(",".join(servers)), namespace)
    return take_snapshot({"dc1": described}, T0_MS, lambda: spark)


def plain(row):
    """A row as Python values, whatever holds its bytes."""
    return tuple(
        [(each.name, each.value and bytes(each.value)) for each in value]
        if isinstance(value, list)
        else bytes(value)
        if isinstance(value, bytearray)
        else value
        for value in row
    )


def test_each_record_is_a_row_in_the_common_columns(spark, filled):
    rows = sorted(map(plain, stored(spark, filled).collect()))
    expected = []
    prefix = filled.datacentres["dc1"].topic_prefix
    for topic, partitions in TOPICS.items():
        for number, records in enumerate(partitions):
            for offset, record in enumerate(records):
                message_id, *said = SAID[id(record)]
                expected.append(
                    (
                        "dc1",
                        topic,
                        number,
                        offset,
                        record.timestamp_ms,
                        record.key,
                        record.value,
                        message_id or f"dc1:{prefix}{topic}:{number}:{offset}",
                        *said,
                        list(record.headers),
                    )
                )
    assert rows == sorted(expected)
    assert stored(spark, filled).columns == list(COLUMNS)


def test_only_what_the_snapshot_names_is_read(spark, filled):
    datacentre = filled.datacentres["dc1"]
    ranges = {"shop.orders": [PartitionRange(0, 2, 5), PartitionRange(2, 20, 25)]}
    cut = Snapshot(0, {"dc1": Datacentre(datacentre.log, datacentre.namespace, topics=ranges)})
    found = stored(spark, cut, columns=["partition", "offset"]).collect()
    assert sorted(map(tuple, found)) == [(0, 2), (0, 3), (0, 4), *((2, n) for n in range(20, 25))]


def test_topics_and_columns_are_chosen(spark, filled):
    rows = stored(
        spark, filled, topics=["_hermes.dlq.shop"], columns=["via", "topic", "message_id"]
    )
    assert [tuple(row) for row in rows.collect()] == [("local", "_hermes.dlq.shop", "id-7")]


def test_a_condition_gives_the_same_rows_wherever_it_is_looked_at(spark, filled):
    rows = stored(spark, filled, columns=["topic", "partition", "offset", "timestamp_ms"])
    for condition in (
        "topic = 'shop.orders' AND partition IN (1, 2)",
        "offset >= 3 AND offset < 5",
        "offset IN (1, 24, 99)",
        f"timestamp_ms > {T0_MS + 110} OR partition = 0",
        f"timestamp_ms >= {T0_MS + 120}",
        f"timestamp_ms < {T0_MS + 2}",
        "topic LIKE '%dlq%'",
        "NOT topic = 'shop.orders'",
        "partition = 7",
    ):
        pushed = sorted(map(tuple, rows.where(condition).collect()))
        # A cast hides the column from the source.
        hidden = rows.selectExpr(
            "concat(topic, '') AS topic",
            "partition + 0 AS partition",
            "offset + 0 AS offset",
            "timestamp_ms + 0 AS timestamp_ms",
        )
        assert pushed == sorted(map(tuple, hidden.where(condition).collect())), condition


def test_nothing_stored_is_no_rows(spark, tmp_path):
    fill_embedded(tmp_path, {"shop.empty": [[], []]})
    described = {"dc1": Datacentre(EmbeddedLog(str(tmp_path)))}
    snapshot = take_snapshot(described, 0, lambda: spark)
    assert snapshot.datacentres["dc1"].topics == {
        "shop.empty": [PartitionRange(0, 0, 0), PartitionRange(1, 0, 0)]
    }
    assert stored(spark, snapshot).collect() == []


def test_an_unknown_datacentre_is_named(spark):
    with pytest.raises(SourceFailed, match="has no datacentre dc7; it has none"):
        stored(spark, Snapshot(0, {}), dcs=["dc7"])


# What the reader did not read.


def read_by_source(frame):
    """(rows, tasks) that the source's scan gave Spark, before Spark's own filters."""
    frame.collect()
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    scans = [leaves.apply(at) for at in range(leaves.size())]
    assert len(scans) == 1
    plan = scans[0]
    while "scan" not in plan.nodeName().lower():
        inner = plan.executedPlan().collectLeaves()
        plan = inner.apply(0)
    return plan.metrics().apply("numOutputRows").value()


def shipped_bytes(snapshot, frame):
    """The size of the Arrow batches that the source makes for that frame's columns."""
    from hermes_spark.sources.embedded import EmbeddedSource  # pyspark is not everywhere

    datacentre = snapshot.datacentres["dc1"]
    options = {"dc": "dc1", "folder": datacentre.log.folder}
    reader = EmbeddedSource(options).reader(frame.schema)
    return sum(batch.nbytes for task in reader.partitions() for batch in reader.read(task))


@pytest.fixture
def embedded(spark, tmp_path):
    records = [native(n) for n in range(1_000)]
    fill_embedded(tmp_path, {"shop.orders": [records, records], "shop.bills": [records]})
    return take_snapshot({"dc1": Datacentre(EmbeddedLog(str(tmp_path)))}, 0, lambda: spark)


def test_what_a_condition_excludes_is_not_read(spark, embedded):
    for condition, rows in (
        ("true", 3_000),
        ("topic = 'shop.bills'", 1_000),
        ("topic = 'shop.orders' AND partition = 1", 1_000),
        ("offset >= 10 AND offset < 15", 15),
        ("offset = 3", 3),
        (f"timestamp_ms >= {T0_MS + 900}", 300),
        ("dc = 'dc2'", 0),
    ):
        assert read_by_source(stored(spark, embedded).where(condition)) == rows, condition


def test_columns_that_are_not_asked_for_are_not_shipped(spark, embedded):
    assert shipped_bytes(embedded, stored(spark, embedded, columns=["offset"])) == 3_000 * 8
    assert shipped_bytes(embedded, stored(spark, embedded)) > 3_000 * 100


# What a log no longer holds.


def test_what_retention_took_since_the_snapshot_is_a_failure_that_says_so(
    spark, embedded, tmp_path
):
    with closing(open_store(tmp_path, accepts_damage=False)) as store:
        store.begin()
        store.connection.execute("UPDATE partition SET start = 400")
        store.commit()
    with pytest.raises(Exception, match=r"shop\.bills/0: retention has removed offsets 0 to 399"):
        stored(spark, embedded, topics=["shop.bills"]).collect()


def test_a_topic_that_vanished_is_a_failure_that_says_so(spark, embedded, tmp_path):
    with closing(open_store(tmp_path, accepts_damage=False)) as store:
        store.begin()
        store.delete_topic("shop.bills")
        store.commit()
    with pytest.raises(Exception, match=r"dc1: shop\.bills/0 is no longer there; take a new"):
        stored(spark, embedded, topics=["shop.bills"]).collect()


def test_a_damaged_chunk_is_a_failure_that_names_its_place(spark, embedded, tmp_path):
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection, connection:
        connection.execute(
            "UPDATE chunk SET checksum = checksum + 1 WHERE id = (SELECT min(id) FROM chunk)"
        )
    with pytest.raises(Exception, match=r"dc1: shop\.\w+/0: .*the chunk at offset 0 is damaged"):
        stored(spark, embedded).collect()


def test_a_log_that_is_away_is_a_failure_of_the_snapshot(tmp_path):
    with pytest.raises(SourceFailed, match=r"there is no embedded log at .*log\.sqlite"):
        take_snapshot({"dc1": Datacentre(EmbeddedLog(str(tmp_path)))}, 0, lambda: None)


@pytest.mark.kafka
def test_of_transactions_of_others_what_is_committed_is_read(spark, kafka_cluster, tmp_path):
    servers, namespace = kafka_cluster.bootstrap_servers, tmp_path.name.replace("_", "-")
    topic = f"{namespace}_shop.orders"
    record = TOPICS["shop.orders"][0][0]
    fill_kafka(servers, f"{namespace}_", {"shop.orders": [[record]]})

    async def write():
        ended = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=f"{namespace}-1")
        left_open = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=f"{namespace}-2")
        await ended.start()
        await left_open.start()
        for value, end in ((b"a", ended.abort_transaction), (b"b", ended.commit_transaction)):
            await ended.begin_transaction()
            await ended.send_and_wait(topic, value, partition=0)
            await end()
        await left_open.begin_transaction()
        await left_open.send_and_wait(topic, b"c", partition=0)
        await ended.stop()
        described = {"dc1": Datacentre(KafkaLog(",".join(servers)), namespace)}
        while True:
            # Kafka answers before it has written the last mark.
            found = await asyncio.to_thread(take_snapshot, described, T0_MS, lambda: spark)
            if found.datacentres["dc1"].topics == {"shop.orders": [PartitionRange(0, 0, 5)]}:
                await left_open.stop()
                return found

    snapshot = asyncio.run(write())
    rows = stored(spark, snapshot, columns=["offset", "value"]).collect()
    assert [(each.offset, bytes(each.value)) for each in rows] == [(0, record.value), (3, b"b")]
