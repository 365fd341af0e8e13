"""The contents of logs and of an archive's folder, read only with third-party readers."""

import sqlite3
from contextlib import closing

import msgspec
from confluent_kafka import Consumer, TopicPartition

OFFSET_BITS = 40


def logged_in_file(dc, file):
    """(dc, topic, partition, offset, timestamp, key, value, headers) of each record of the log."""
    found = []
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        chunks = connection.execute(
            "SELECT name, number, start, chunk.id, content FROM chunk"
            f" JOIN partition ON partition.id = chunk.id >> {OFFSET_BITS}"
            " JOIN topic ON topic.id = topic_id"
        )
        for topic, partition, start, chunk_id, content in chunks:
            first = chunk_id & (1 << OFFSET_BITS) - 1
            for offset, entry in enumerate(msgspec.msgpack.decode(content), first):
                if offset >= start:
                    timestamp_ms, key, value, headers = entry
                    pairs = tuple(map(tuple, headers))
                    found.append((dc, topic, partition, offset, timestamp_ms, key, value, pairs))
    return sorted(found, key=place)


def logged_in_kafka(dc, servers, prefix, partitions):
    """The same for a Kafka cluster; `partitions` is each topic's number of partitions."""
    consumer = Consumer(
        {"bootstrap.servers": ",".join(servers), "group.id": "oracle", "enable.auto.commit": False}
    )
    found = []
    try:
        for topic, count in partitions.items():
            for number in range(count):
                place_ = TopicPartition(f"{prefix}{topic}", number)
                start, end = consumer.get_watermark_offsets(place_, timeout=30)
                consumer.assign([TopicPartition(f"{prefix}{topic}", number, start)])
                at = start
                while at < end:
                    record = consumer.poll(30)
                    assert record is not None
                    assert record.error() is None
                    at = record.offset() + 1
                    headers = tuple(record.headers() or ())
                    stamp, key, value = record.timestamp()[1], record.key(), record.value()
                    found.append((dc, topic, number, at - 1, stamp, key, value or b"", headers))
    finally:
        consumer.close()
    return sorted(found, key=place)


def place(row):
    return row[:4]


def archived_plainly(folder):
    """The same rows as pyarrow finds them from the folder alone."""
    import pyarrow as pa
    from pyarrow import dataset

    names = pa.schema([("topic", pa.string()), ("date", pa.string()), ("hour", pa.int32())])
    read = dataset.dataset(folder, partitioning=dataset.partitioning(names, flavor="hive"))
    rows = read.to_table().to_pylist() if read.files else []
    assert all(dataset.dataset(file).count_rows() for file in read.files), "an empty file"
    for row in rows:
        hour = row["timestamp_ms"] // 3_600_000
        assert row["hour"] == hour % 24
    return sorted(
        (
            (
                *(row["dc"], row["topic"], row["partition"], row["offset"]),
                *(row["timestamp_ms"], row["key"], row["value"]),
                tuple((each["name"], each["value"]) for each in row["headers"]),
            )
            for row in rows
        ),
        key=place,
    )
