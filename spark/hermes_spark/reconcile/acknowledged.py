"""A publisher's lists of acknowledged messages: files, or a topic."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from msgspec import Struct

from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_actors.model.message import from_record
from hermes_actors.model.record import StoredRecord
from hermes_spark.lives import lives_in
from hermes_spark.snapshot import Snapshot
from hermes_spark.sources import stored

ACCEPTED = (201, 202)
COLUMNS = {"topic": "STRING", "messageId": "STRING", "status": "INT", "sentMs": "BIGINT"}
"""The columns of a list. `status` defaults to 201; `sentMs` may be missing."""

_TEXTS = ", ".join(f"{name} STRING" for name in COLUMNS)
# A number may be written as text, so every column is read as text and then cast.
_CAST = tuple(f"CAST({name} AS {kind}) AS {name}" for name, kind in COLUMNS.items())
_GLOB = re.compile(r"[\\*?\[\]{}]")
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

    `topic` is that of all its messages; an empty string if each line names its topic.
    """

    topic: str = ""
    path: str = ""
    format: str = ""
    stored_in: str = ""


def acknowledged_list(text: str) -> AcknowledgedList:
    """The list in an option `FILE`, `TOPIC=FILE` or `topic:TOPIC`. Raises UsageWrong.

    The file's suffix gives its format: JSON lines, CSV with a header, Parquet, or text with one id
    per line; `.gz` may follow it.
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
    if Path(path).name.startswith(("_", ".")):
        raise UsageWrong(
            f"--acknowledged {text}: Spark ignores files whose names begin with _ or a dot; "
            "rename it"
        )
    return AcknowledgedList(topic, str(Path(path).absolute()), found)


def acknowledged(spark: Any, lists: Sequence[AcknowledgedList], snapshot: Snapshot) -> Any:
    """The rows of all lists: topic, message_id, status (201 or 202) and sent_ms (null: unknown).

    Lines with another status are dropped. Running it fails for a line that cannot be parsed, and
    for an accepted one without topic or id. Raises UsageWrong for a list without such columns, and
    for a topic that no datacentre has.
    """
    from pyspark.sql import functions as f

    def said(name: str) -> Any:
        missing = f"SourceFailed: a line of the lists of --acknowledged has no {name}"
        return f.coalesce(name, f.raise_error(f.lit(missing)))

    frames = [_read(spark, each, snapshot).selectExpr(*_CAST) for each in lists]
    rows = reduce(lambda one, other: one.unionByName(other), frames)
    status = f.coalesce("status", f.lit(ACCEPTED[0]))
    return rows.where(status.isin(*ACCEPTED)).select(
        said("topic").alias("topic"),
        said("messageId").alias("message_id"),
        status.alias("status"),
        f.col("sentMs").alias("sent_ms"),
    )


def _read(spark: Any, of: AcknowledgedList, snapshot: Snapshot) -> Any:
    """The rows of one list, with all columns as text."""
    from pyspark.sql import functions as f

    if of.stored_in:
        held = lives_in(snapshot, [of.stored_in])
        if not held:
            raise UsageWrong(f"--acknowledged topic:{of.stored_in}: no datacentre has that topic")
        columns = ["value", "headers"]
        rows = stored(spark, snapshot, topics=held, columns=columns)
        rows = rows.mapInPandas(_bodies, "body STRING").where("trim(body) != ''")
        said = f.from_json("body", _TEXTS, {"mode": "FAILFAST"})
        return rows.select(said.alias("said")).select("said.*")
    path = _GLOB.sub(r"\\\g<0>", of.path)
    if of.format == "text":
        rows = spark.read.text(path).select(f.trim("value").alias("messageId"))
        rows = rows.where("messageId != ''")
    elif of.format == "json":
        rows = spark.read.schema(_TEXTS).option("mode", "FAILFAST").json(path)
    elif of.format == "csv":
        rows = spark.read.csv(path, header=True, mode="FAILFAST", escape='"')
    else:
        rows = spark.read.parquet(path)
    if of.topic:
        rows = rows.withColumn("topic", f.lit(of.topic))
    for name in COLUMNS:
        if name in rows.columns:
            continue
        if name in ("topic", "messageId"):
            raise UsageWrong(
                f"--acknowledged {of.path}: it has no column {name}, but {', '.join(rows.columns)}"
                + ("; or write TOPIC=FILE" if name == "topic" else "")
            )
        rows = rows.withColumn(name, f.lit(None))
    return rows


def _bodies(frames: Iterable[Any]) -> Iterator[Any]:
    """The messages' bodies, without Hermes' envelope if there is one."""
    import pandas as pd

    for frame in frames:
        yield pd.DataFrame({"body": [_body(each) for each in frame.itertuples(index=False)]})


def _body(row: Any) -> str:
    headers = tuple((each["name"], bytes(each["value"] or b"")) for each in row.headers)
    record = StoredRecord(0, 0, 0, None, bytes(row.value or b""), headers)
    return from_record(record).body.decode()
