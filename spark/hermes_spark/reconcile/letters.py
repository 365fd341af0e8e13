"""The open dead letters, from the dead-letter topics of all datacentres."""

from collections.abc import Iterable, Iterator
from typing import Any

from hermes_actors.model.dead_letter import Letter, Mark, UndecodableLetter, read_entry
from hermes_actors.model.record import Record
from hermes_spark.snapshot import DEAD_LETTERS_PREFIX, Snapshot
from hermes_spark.sources import stored

_EVER_MS = 2**63 - 1
ENTRIES = (
    "dc STRING, letter STRING, at BIGINT, up_to_ms BIGINT, topic STRING, subscription STRING, "
    "log_topic STRING, message_id STRING, partition INT, offset BIGINT, reason STRING, at_ms BIGINT"
)
"""A row for each letter, and one for each id that a mark closes, with a non-null `up_to_ms`. `dc`
and `letter` (the letter's id) identify the letter; `at` is the entry's place among those about it.
"""


def open_letters(spark: Any, snapshot: Snapshot) -> Any:
    """A row for each open letter: dc, topic, subscription, message_id, the place of the original
    (log_topic as in the log, partition, offset), reason and at_ms.

    The last entry about a letter decides, as in `OpenLetters`. Entries that cannot be read are
    ignored, as consumers do.
    """
    from pyspark.sql import functions as f

    topics = sorted(
        {
            topic
            for datacentre in snapshot.datacentres.values()
            for topic in datacentre.topics
            if topic.startswith(DEAD_LETTERS_PREFIX)
        }
    )
    columns = ["dc", "offset", "timestamp_ms", "key", "value", "headers"]
    entries = stored(spark, snapshot, topics=topics, columns=columns).mapInPandas(_entries, ENTRIES)
    newest = f.max(f.when(f.col("up_to_ms").isNull(), f.struct("at", *_LETTER)))
    marks = f.collect_set(f.when(f.col("up_to_ms").isNotNull(), f.struct("at", "up_to_ms")))
    folded = entries.groupBy("dc", "letter", "subscription").agg(
        newest.alias("newest"), marks.alias("marks")
    )
    is_closed = f.exists(
        "marks",
        lambda mark: (
            (mark["at"] > f.col("newest.at")) & (mark["up_to_ms"] >= f.col("newest.at_ms"))
        ),
    )
    is_open = f.col("newest").isNotNull() & ~is_closed
    return folded.where(is_open).select(
        "dc", "subscription", *(f.col(f"newest.{name}").alias(name) for name in _LETTER)
    )


_LETTER = ("at_ms", "topic", "log_topic", "message_id", "partition", "offset", "reason")


def _entries(frames: Iterable[Any]) -> Iterator[Any]:
    import pandas as pd

    names = [each.split()[0] for each in ENTRIES.split(", ")]
    for frame in frames:
        rows: list[tuple[Any, ...]] = []
        for each in frame.itertuples(index=False):
            rows += _rows_of(each)
        yield pd.DataFrame(rows, columns=names).astype(
            {"up_to_ms": "Int64", "partition": "Int64", "offset": "Int64", "at_ms": "Int64"}
        )


def _rows_of(row: Any) -> Iterator[tuple[Any, ...]]:
    headers = tuple((each["name"], bytes(each["value"] or b"")) for each in row.headers)
    record = Record(row.key, bytes(row.value or b""), headers, int(row.timestamp_ms))
    try:
        entry = read_entry(record)
    except UndecodableLetter:
        return
    at = int(row.offset)
    if isinstance(entry, Mark):
        subscription = bytes(row.key or b"").decode("utf-8", "replace")
        for letter_id, up_to_ms in entry.closings():
            limit = _EVER_MS if up_to_ms == float("inf") else int(up_to_ms)
            yield (row.dc, letter_id, at, limit, None, subscription, *[None] * 6)
        return
    yield _letter_row(row.dc, at, entry)


def _letter_row(dc: str, at: int, letter: Letter) -> tuple[Any, ...]:
    topic, _, _ = letter.subscription.rpartition("$")
    return (
        dc,
        letter.id,
        at,
        None,
        topic,
        letter.subscription,
        letter.log_topic,
        letter.message_id,
        letter.partition,
        letter.offset,
        letter.reason,
        letter.at_ms,
    )
