"""Selects the messages of a reconciliation to put back, and finds their records."""

from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_actors.model.record import StoredRecord
from hermes_spark.lives import topic_of
from hermes_spark.reconcile.flags import Fate, fate_of
from hermes_spark.reconcile.job import MESSAGES, UNSETTLED
from hermes_spark.replay.publishing import Candidate
from hermes_spark.replay.request import ReplayRequest, replay_request

COLUMNS = (
    "dc",
    "topic",
    "partition",
    "offset",
    "timestamp_ms",
    "key",
    "value",
    "message_id",
    "headers",
)


ROW_GROUP_BYTES = 16 << 20
ROWS_AT_ONCE = 100
"""How many rows are in memory while messages are published, plus what a Parquet row group needs."""


class Which(StrEnum):
    """Which messages are put back."""

    LOST = "lost"
    """Acknowledged, and in no log."""
    UNSETTLED = "unsettled"
    """Stored and not settled, by the given subscription or by any."""


def named(spark: Any, report: Path, which: Which, subscription: str = "") -> Any:
    """The messages in a reconciliation's tables, once each: topic and message_id.

    Raises UsageWrong for a folder without a reconciliation.
    """
    from pyspark.sql import functions as f

    folder = report.absolute() / (MESSAGES if which is Which.LOST else UNSETTLED)
    if not folder.is_dir():
        raise UsageWrong(f"{report} holds no reconciliation; make one: hermes spark reconcile -o …")
    rows = spark.read.parquet(str(folder))
    if which is Which.LOST:
        flags = [row.flags for row in rows.where("copies = 0").select("flags").distinct().collect()]
        lost = [each for each in flags if fate_of(each) is Fate.LOST]
        rows = rows.where((f.col("copies") == 0) & f.col("flags").isin(*lost))
    elif subscription:
        rows = rows.where(f.concat_ws("$", "topic", "subscription") == subscription)
    return rows.select("topic", "message_id").distinct()


def of_ids(spark: Any, ids: Path, topic: str) -> Any:
    """The messages of a file with one id per line, once each: topic and message_id."""
    from pyspark.sql import functions as f

    rows = spark.read.text(str(ids.absolute())).select(f.trim("value").alias("message_id"))
    return (
        rows.where("message_id != ''").distinct().select(f.lit(topic).alias("topic"), "message_id")
    )


def records_of(wanted: Any, records: Any, topics: Collection[str] | None = None) -> Any:
    """One record (in the common columns) for each wanted message, in order, if there is one.

    Of several copies the first one by datacentre, partition and offset is used.
    """
    from pyspark.sql import functions as f

    rows = records.withColumn("topic", topic_of("topic"))
    if topics:
        rows = rows.where(f.col("topic").isin(*topics))
    place = ("dc", "partition", "offset")
    content = ("timestamp_ms", "key", "value", "headers")
    first = f.min_by(f.struct(*place, *content), f.struct(*place)).alias("first")
    found = rows.join(wanted, ["topic", "message_id"], "left_semi")
    return (
        found.groupBy("topic", "message_id")
        .agg(first)
        .select("topic", "message_id", "first.*")
        .orderBy("topic", *place)
    )


def write_in_order(records: Any, folder: Path) -> int:
    """Write the rows of `records_of` into a new folder, for `rows_in_order`. Return
    their number.
    """
    import pyarrow.parquet

    size = str(ROW_GROUP_BYTES)
    records.write.option("parquet.block.size", size).parquet(f"file://{folder.absolute()}")
    return sum(pyarrow.parquet.read_metadata(each).num_rows for each in _files(folder))


def rows_in_order(folder: Path) -> Iterator[dict[str, Any]]:
    """The rows in order, with only a part of a file in memory."""
    import pyarrow.parquet

    for path in _files(folder):
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE):
                yield from batch.to_pylist()


def _files(folder: Path) -> list[Path]:
    # Spark numbers the files in the order of their rows.
    return sorted(folder.glob("part-*.parquet"))


def candidates(rows: Iterable[dict[str, Any]], only_for: str = "") -> Iterator[Candidate]:
    """A candidate for each row of `records_of`, made lazily."""
    for row in rows:

        def make(row: dict[str, Any] = row) -> ReplayRequest:
            headers = tuple((each["name"], each["value"] or b"") for each in row["headers"])
            value = row["value"]
            record = StoredRecord(
                row["partition"],
                row["offset"],
                row["timestamp_ms"],
                row["key"],
                value or b"",
                headers,
                is_tombstone=value is None,
            )
            return replay_request(row["topic"], row["message_id"], record, only_for)

        yield Candidate(row["topic"], row["message_id"], make)
