"""A publisher's own lists of what was acknowledged: files, or a topic."""

from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from msgspec import Struct

from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_spark.snapshot import Snapshot
from hermes_spark.sources import stored

ACCEPTED = (201, 202)
COLUMNS = "topic STRING, messageId STRING, status INT, sentMs BIGINT"
"""What a list says: `status` is 201 where none is said, `sentMs` may be missing."""

_TOPIC = "topic:"
_FORMATS = {
    ".ndjson": "json",
    ".jsonl": "json",
    ".json": "json",
    ".csv": "csv",
    ".parquet": "parquet",
    ".txt": "text",
}


class AcknowledgedList(Struct, frozen=True):
    """One list: the `path` of a file or folder in that `format`, or the topic `stored_in`.

    `topic` is that of all its messages, "" where the list says it itself.
    """

    topic: str = ""
    path: str = ""
    format: str = ""
    stored_in: str = ""


def acknowledged_list(text: str) -> AcknowledgedList:
    """What an option names: `FILE`, `TOPIC=FILE` or `topic:TOPIC`. Raises UsageWrong.

    A file is JSON lines, CSV with a header, Parquet, or text with an id in each line, by its
    ending; `.gz` may follow it.
    """
    if text.startswith(_TOPIC):
        return AcknowledgedList(stored_in=text.removeprefix(_TOPIC))
    topic, sign, path = text.partition("=")
    if not sign or "/" in topic:
        topic, path = "", text
    plain = path.removesuffix(".gz")
    found = _FORMATS.get(Path(plain).suffix)
    if found is None:
        raise UsageWrong(
            f"--acknowledged {text}: the file's name must end with one of "
            f"{', '.join(_FORMATS)} (.gz may follow); or write topic:NAME"
        )
    if found == "text" and not topic:
        raise UsageWrong(f"--acknowledged {text}: ids alone need their topic; write TOPIC={path}")
    if not Path(path).exists():
        raise UsageWrong(f"--acknowledged {text}: there is no file {path}")
    return AcknowledgedList(topic, str(Path(path).absolute()), found)


def acknowledged(spark: Any, lists: Sequence[AcknowledgedList], snapshot: Snapshot) -> Any:
    """The rows of all lists: topic, message_id, status (201 or 202) and sent_ms (null: unknown).

    Lines with another status, which promised nothing, are left out, and those without an id too.
    Running it fails for a line that cannot be read.
    """
    from pyspark.sql import functions as f

    frames = [_read(spark, each, snapshot) for each in lists]
    rows = reduce(lambda one, other: one.unionByName(other), frames)
    return rows.select(
        "topic",
        f.col("messageId").alias("message_id"),
        f.coalesce("status", f.lit(ACCEPTED[0])).alias("status"),
        f.col("sentMs").alias("sent_ms"),
    ).where(f.col("status").isin(*ACCEPTED) & f.col("message_id").isNotNull())


def _read(spark: Any, of: AcknowledgedList, snapshot: Snapshot) -> Any:
    from pyspark.sql import functions as f

    if of.stored_in:
        values = stored(spark, snapshot, topics=[of.stored_in], columns=["value"])
        text = f.col("value").cast("string")
        said = f.from_json(text, COLUMNS, {"mode": "FAILFAST"})
        return values.select(said.alias("said")).select("said.*")
    if of.format == "text":
        rows = spark.read.text(of.path).select(f.trim("value").alias("messageId"))
        return rows.where("messageId != ''").selectExpr(
            f"{_literal(of.topic)} AS topic",
            "messageId",
            "CAST(NULL AS INT) AS status",
            "CAST(NULL AS BIGINT) AS sentMs",
        )
    reader = spark.read.format(of.format)
    if of.format != "parquet":
        reader = reader.schema(COLUMNS).option("mode", "FAILFAST").option("header", "true")
        # By name, in whichever order the columns stand.
        reader = reader.option("enforceSchema", "false") if of.format == "csv" else reader
    rows = reader.load(of.path)
    missing = [name for name in ("topic", "status", "sentMs") if name not in rows.columns]
    for name in missing:
        rows = rows.withColumn(name, f.lit(None))
    if of.topic:
        rows = rows.withColumn("topic", f.lit(of.topic))
    return rows.selectExpr(
        "CAST(topic AS STRING)",
        "CAST(messageId AS STRING)",
        "CAST(status AS INT)",
        "CAST(sentMs AS BIGINT)",
    )


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
