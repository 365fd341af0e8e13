"""The data pipeline: how fast Spark reads logs, reconciles and archives, and how that scales.

    python benchmarks/spark.py [--records 1000000,5000000] [--fold 20000000] [--logs embedded,kafka]

`--records` is the number in each of two datacentres, about 200 bytes each; `--fold` is the number
of normalised rows in the reconciliation's own step, half copies and half acknowledgements. Each
figure is compared with a plain Python loop over the same data on one core. Prints rows a second per
core, the seconds, the CPU seconds of all processes including Kafka's (more reliable on a busy
machine), the maximum memory of the JVM and of all processes, and the spilled bytes.
"""

import argparse
import hashlib
import os
import sqlite3
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Self

import msgspec
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from hermes_actors.log.base import TopicSettings
from hermes_actors.log.embedded.opening import open_store
from hermes_actors.log.embedded.schema import FILE_NAME, read_entries, read_topics
from hermes_actors.model.message import Message, to_record
from hermes_actors.runtime.clock import SystemClock
from hermes_local.kafka import Cluster
from hermes_spark.archive import archived
from hermes_spark.archive.append import append
from hermes_spark.archive.commits import open_archive
from hermes_spark.archive.compaction import compact
from hermes_spark.latency.job import latency
from hermes_spark.reconcile.acknowledged import acknowledged_list
from hermes_spark.reconcile.flags import Fact, place
from hermes_spark.reconcile.folding import folded
from hermes_spark.reconcile.job import reconcile
from hermes_spark.session import session
from hermes_spark.snapshot import Datacentre, EmbeddedLog, KafkaLog, Snapshot
from hermes_spark.sources import stored
from hermes_spark.taking import take_snapshot

CORES = 2
TOPIC = "bench.spark"
PARTITIONS = 4
DOUBLED_EVERY = 50
CHUNK = 1_000
ARCHIVE_BATCH = 250_000
BEGAN_MS = 1_700_000_000_000
LOOP_RECORDS_MAX = 1_000_000
"""A plain loop scales linearly, so it is measured only on this many records."""

clock = SystemClock()


def main() -> int:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", default="1000000")
    parser.add_argument("--fold", type=int, default=20_000_000)
    parser.add_argument("--logs", default="embedded,kafka")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hermes-spark-")))
        spark = session("benchmark", f"local[{CORES}]", {"spark.local.dir": str(folder / "local")})
        stack.callback(spark.stop)
        table = Table(spark)
        table.head()
        # Warm up the JVM's compiler first.
        _fold(spark, 500_000)
        if options.fold:
            rows = options.fold
            made_s = table.row(f"make {rows:,} rows", rows, lambda: _make(spark, rows))
            seconds = table.row(f"make and fold {rows:,} rows", rows, lambda: _fold(spark, rows))
            loop = _fold_loop(min(options.fold, LOOP_RECORDS_MAX))
            table.loop("  dict in a loop", min(options.fold, LOOP_RECORDS_MAX), loop)
            print(
                "  goal: 20,000,000 rows folded within 15 s; at this rate "
                f"{20e6 * (seconds - made_s) / rows:.1f} s, and "
                f"{rows / max(seconds - made_s, 0.001) / CORES:,.0f} rows/s a core"
            )
        for kind in filter(None, options.logs.split(",")):
            for records in map(int, options.records.split(",")):
                place = folder / f"{kind}-{records}"
                place.mkdir()
                _of_log(kind, records, place, spark, table)
    return 0


class Table:
    """Prints a line for each measurement."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._pid = int(spark._jvm.java.lang.ProcessHandle.current().pid())

    def head(self) -> None:
        """Print the column heads."""
        print(
            f"{'':34}{'rows':>12}{'s':>9}{'rows/s a core':>15}{'CPU s':>8}{'rows/CPU s':>12}"
            f"{'JVM MiB':>9}{'all MiB':>9}{'spilled MiB':>12}"
        )

    def row(self, name: str, rows: int, step: Callable[[], object]) -> float:
        """Measure the step on all cores; return the seconds."""
        spilled, busy_s = self._spilled(), _busy_s(self._pid)
        with _Memory(self._pid) as memory:
            began_s = clock.monotonic_s()
            step()
            seconds = clock.monotonic_s() - began_s
        busy_s = _busy_s(self._pid) - busy_s
        print(
            f"{name:34}{rows:>12,}{seconds:>9.1f}{rows / seconds / CORES:>15,.0f}"
            f"{busy_s:>8.1f}{rows / max(busy_s, 0.01):>12,.0f}"
            f"{memory.jvm_mib:>9,.0f}{memory.all_mib:>9,.0f}"
            f"{(self._spilled() - spilled) / 2**20:>12,.0f}",
            flush=True,
        )
        return seconds

    def loop(self, name: str, rows: int, step: Callable[[], object]) -> None:
        """Measure a plain loop on one core."""
        began_s = clock.monotonic_s()
        step()
        seconds = clock.monotonic_s() - began_s
        print(f"{name:34}{rows:>12,}{seconds:>9.1f}{rows / seconds:>15,.0f}", flush=True)

    def _spilled(self) -> int:
        """Bytes that all stages so far have spilled to disk."""
        gateway = self._spark.sparkContext._gateway
        nothing, numbers = (
            gateway.jvm.java.util.ArrayList(),
            gateway.new_array(gateway.jvm.double, 0),
        )
        store = self._spark.sparkContext._jsc.sc().statusStore()
        stages = store.stageList(nothing, False, False, numbers, nothing)
        return sum(stages.apply(at).diskBytesSpilled() for at in range(stages.size()))


class _Memory:
    """The maximum memory of the JVM, and of the JVM, this process and the workers together."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.jvm_mib = self.all_mib = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            of_jvm, total = _resident(self._pid)
            self.jvm_mib = max(self.jvm_mib, of_jvm)
            self.all_mib = max(self.all_mib, total)
            if self._over.wait(0.2):
                return


def _family(pid: int) -> dict[int, list[str]]:
    """The fields of `stat` of this process, that one, and all their descendants."""
    told: dict[int, list[str]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            told[int(stat.parent.name)] = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
    family: set[int] = set()
    frontier = {os.getpid(), pid}
    while frontier:
        family |= frontier
        frontier = {each for each, fields in told.items() if int(fields[1]) in frontier} - family
    return {each: told[each] for each in family if each in told}


def _resident(pid: int) -> tuple[float, float]:
    """MiB of that process, and of all descendants of the caller."""
    sizes = {each: int(fields[21]) * 4096 / 2**20 for each, fields in _family(pid).items()}
    return sizes.get(pid, 0.0), sum(sizes.values())


def _busy_s(pid: int) -> float:
    """Their CPU seconds so far, including their ended children."""
    ticks = sum(sum(map(int, fields[11:15])) for fields in _family(pid).values())
    return ticks / os.sysconf("SC_CLK_TCK")


def _fold_rows(spark: Any, rows: int) -> Any:
    """Copies of half as many messages as rows, some of them twice, and their acknowledgements."""
    from pyspark.sql import functions as f

    half = rows // 2
    number = f.col("id")
    own = f.when(number % DOUBLED_EVERY == 0, number + 1).otherwise(number)
    copies = spark.range(0, half, 1, CORES * 4).select(
        f.lit(TOPIC).alias("topic"),
        f.md5(own.cast("string")).alias("message_id"),
        f.when(number % 2 == 0, f.lit(place(0, 0))).otherwise(f.lit(place(1, 2))).alias("flags"),
        f.lit(1).alias("copies"),
        (f.lit(BEGAN_MS) + number).alias("at_ms"),
    )
    listed = spark.range(0, half, 1, CORES * 4).select(
        f.lit(TOPIC).alias("topic"),
        f.md5(number.cast("string")).alias("message_id"),
        f.lit(int(Fact.ACKNOWLEDGED)).cast("bigint").alias("flags"),
        f.lit(0).alias("copies"),
        f.lit(None).cast("bigint").alias("at_ms"),
    )
    return copies.unionAll(listed)


def _make(spark: Any, rows: int) -> None:
    from pyspark.sql import functions as f

    made = _fold_rows(spark, rows)
    made.agg(f.max("message_id"), f.bit_or("flags"), f.sum("copies")).collect()


def _fold(spark: Any, rows: int) -> None:
    counted = folded(_fold_rows(spark, rows)).groupBy("topic", "flags", "copies").count()
    assert sum(row["count"] for row in counted.collect()) == rows // 2


def _fold_loop(rows: int) -> Callable[[], None]:
    half = rows // 2
    normalised = [
        (TOPIC, hashlib.md5(b"%d" % number).hexdigest(), flags, copies)
        for flags, copies in ((place(0, 0), 1), (int(Fact.ACKNOWLEDGED), 0))
        for number in range(half)
    ]

    def run() -> None:
        found: dict[tuple[str, str], tuple[int, int]] = {}
        for topic, message_id, flags, copies in normalised:
            before = found.get((topic, message_id), (0, 0))
            found[topic, message_id] = before[0] | flags, before[1] + copies
        assert len(found) == half

    return run


def _messages(dc: str, records: int) -> Iterator[Message]:
    """The messages of one datacentre; one in fifty of dc2 is a hedge of a message of dc1."""
    for number in range(records):
        is_hedge = dc == "dc2" and number % DOUBLED_EVERY == 0
        owner = "dc1" if is_hedge else dc
        body = b'{"id":%d,"order":{"country":"PL","total":17.5},"note":"%s"}' % (number, b"x" * 80)
        yield Message(
            f"{owner}-0000-4000-8000-{number:012d}",
            body,
            BEGAN_MS + number,
            None,
            dc=owner,
            via="hedge" if is_hedge else "local",
        )


def _of_log(kind: str, records: int, folder: Path, spark: Any, table: Table) -> None:
    with ExitStack() as stack:
        fill = _embedded if kind == "embedded" else _kafka
        datacentres = {dc: fill(stack, folder / dc, dc, records) for dc in ("dc1", "dc2")}
        listed = folder / "sent.ndjson"
        with listed.open("wb") as file:
            for dc in datacentres:
                for message in _messages(dc, records):
                    if message.dc == dc:
                        line = {"topic": TOPIC, "messageId": message.id, "status": 201}
                        file.write(msgspec.json.encode(line) + b"\n")
        taken_at_ms = BEGAN_MS + records + 3_600_000
        snapshot = take_snapshot(datacentres, taken_at_ms, lambda: spark)
        total = 2 * records
        name = f"{kind}, 2 × {records:,}"
        table.row(f"{name}: read + id", total, lambda: _count(spark, snapshot, "message_id"))
        # The first run includes the JVM's compilation.
        table.row("  again", total, lambda: _count(spark, snapshot, "message_id"))
        table.row(f"{name}: JSON decode", total, lambda: _decode(spark, snapshot))
        loop = min(records, LOOP_RECORDS_MAX)
        table.loop("  read + id in a loop", loop, lambda: _loop(snapshot, loop))
        lists = [acknowledged_list(str(listed))]
        out = folder / "out"
        seconds = table.row(
            f"{name}: reconcile",
            total,
            lambda: _reconciled(spark, snapshot, lists, out, records),
        )
        print(
            f"  with {total - records // DOUBLED_EVERY:,} lines of a list: {seconds:.1f} s in all"
        )
        table.row(f"{name}: latency", total, lambda: _latency(spark, snapshot, folder / "latency"))
        kept = folder / "archive"
        table.row(f"{name}: archive", total, lambda: _archive(spark, snapshot, kept))
        table.row("  compacted", total, lambda: _compact(kept, taken_at_ms + 86_400_000))
        table.row("  read back", total, lambda: _read_back(spark, kept, total))


def _count(spark: Any, snapshot: Snapshot, column: str) -> None:
    from pyspark.sql import functions as f

    rows = stored(spark, snapshot, columns=[column])
    (found,) = rows.agg(f.count(column), f.max(column)).collect()
    assert found[0] == sum(each.records for each in snapshot.datacentres.values())


def _decode(spark: Any, snapshot: Snapshot) -> None:
    from pyspark.sql import functions as f

    text = f.col("value").cast("string")
    said = f.from_json(text, "id BIGINT, order STRUCT<country: STRING, total: DOUBLE>, note STRING")
    rows = stored(spark, snapshot, columns=["value"]).select(said.alias("said"))
    rows.agg(f.max("said.id"), f.sum("said.order.total"), f.max("said.note")).collect()


def _latency(spark: Any, snapshot: Snapshot, folder: Path) -> None:
    result = latency(spark, snapshot, [], folder, say=lambda _: None)
    assert result.hedging[0].messages


def _archive(spark: Any, snapshot: Snapshot, folder: Path) -> None:
    with open_archive(folder, snapshot.taken_at_ms) as archive:
        offsets = sum(each.records for each in snapshot.datacentres.values())
        # At least two batches, so that there is something to compact.
        append(lambda: spark, archive, snapshot, min(ARCHIVE_BATCH, offsets // 4))


def _compact(folder: Path, now_ms: int) -> None:
    with open_archive(folder, now_ms) as archive:
        assert list(compact(archive, now_ms))


def _read_back(spark: Any, folder: Path, records: int) -> None:
    from pyspark.sql import functions as f

    (found,) = archived(spark, folder, columns=["message_id"]).agg(f.count("message_id")).collect()
    assert found[0] == records


def _reconciled(spark: Any, snapshot: Snapshot, lists: Any, out: Path, records: int) -> None:
    result = reconcile(spark, snapshot, lists, out, say=lambda _: None)
    assert result.verdict == "clean", result.reasons()
    assert result.causes == {"hedge": len(range(0, records, DOUBLED_EVERY))}


def _embedded(_stack: ExitStack, folder: Path, dc: str, records: int) -> Datacentre:
    with closing(open_store(folder, accepts_damage=False)) as store:
        store.begin()
        store.create_topic(TOPIC, TopicSettings(partitions=PARTITIONS))
        store.commit()
        batch = []
        for number, message in enumerate(_messages(dc, records), 1):
            batch.append(to_record(message))
            if len(batch) == CHUNK or number == records:
                store.begin()
                store.append(TOPIC, number // CHUNK % PARTITIONS, batch, 0, 0.0)
                store.flush()
                store.commit()
                batch = []
    return Datacentre(EmbeddedLog(str(folder)))


def _kafka(stack: ExitStack, folder: Path, dc: str, records: int) -> Datacentre:
    cluster = Cluster(folder, heap_mb=384)
    stack.callback(cluster.kill)
    cluster.start()
    servers = cluster.bootstrap_servers[0]
    admin = AdminClient({"bootstrap.servers": servers})
    # The records are older than a broker's default retention.
    topic = NewTopic(TOPIC, PARTITIONS, 1, config={"retention.ms": "-1"})
    admin.create_topics([topic])[TOPIC].result()
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "acks": 1})
    for number, message in enumerate(_messages(dc, records)):
        record = to_record(message)
        while True:
            try:
                producer.produce(
                    TOPIC,
                    record.value,
                    partition=number // CHUNK % PARTITIONS,
                    timestamp=record.timestamp_ms,
                    headers=list(record.headers),
                )
                break
            except BufferError:
                producer.poll(0.1)
        if number % CHUNK == 0:
            producer.poll(0)
    producer.flush()
    return Datacentre(KafkaLog(servers))


def _loop(snapshot: Snapshot, records: int) -> None:
    """Read so many records of the first datacentre one by one, and look at their ids."""
    log = snapshot.datacentres["dc1"].log
    ids = 0
    if isinstance(log, EmbeddedLog):
        with closing(sqlite3.connect(Path(log.folder) / FILE_NAME)) as connection:
            (topic,) = (row for row in read_topics(connection) if row.name == TOPIC)
            for partition in topic.partitions:
                for _, entry in read_entries(
                    connection, partition.id, partition.start, partition.end
                ):
                    ids += bool(dict(entry[3])["id"].decode())
    else:
        consumer = Consumer({"bootstrap.servers": log.bootstrap_servers, "group.id": "loop"})
        consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
        while ids < records:
            for record in consumer.consume(CHUNK, 5):
                headers: Any = record.headers()
                ids += bool(dict(headers)["id"].decode())
        consumer.close()
    assert ids >= records, f"{ids} of {records}"


if __name__ == "__main__":
    sys.exit(main())
