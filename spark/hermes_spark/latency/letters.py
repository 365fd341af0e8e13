"""When messages were given up, from the dead-letter topics of all datacentres."""

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from hermes_actors.model.dead_letter import Letter, UndecodableLetter, read_entry
from hermes_actors.model.record import Record
from hermes_spark.snapshot import DEAD_LETTERS_PREFIX, Snapshot
from hermes_spark.sources import stored

GIVEN_UP = (
    "dc STRING, topic STRING, subscription STRING, id STRING, published_ms BIGINT, at_ms BIGINT"
)


def given_up(spark: Any, snapshot: Snapshot, topics: Collection[str]) -> Any:
    """A row for each message of these topics that a subscription has given up, whether its letter
    is still open or not. Of several letters for one message the first counts.
    """
    from pyspark.sql import functions as f

    letters = {
        topic
        for datacentre in snapshot.datacentres.values()
        for topic in datacentre.topics
        if topic.startswith(DEAD_LETTERS_PREFIX)
    }
    columns = ["dc", "timestamp_ms", "key", "value", "headers"]
    rows = stored(spark, snapshot, topics=letters, columns=columns).mapInPandas(_rows, GIVEN_UP)
    place = ["dc", "topic", "subscription", "id"]
    return (
        rows.where(f.col("topic").isin(*topics))
        .groupBy(*place)
        .agg(f.min("published_ms").alias("published_ms"), f.min("at_ms").alias("at_ms"))
    )


def _rows(frames: Iterable[Any]) -> Iterator[Any]:
    import pandas as pd

    for frame in frames:
        rows = []
        for each in frame.itertuples(index=False):
            headers = tuple((pair["name"], bytes(pair["value"] or b"")) for pair in each.headers)
            record = Record(each.key, bytes(each.value or b""), headers, int(each.timestamp_ms))
            try:
                letter = read_entry(record)
            except UndecodableLetter:
                continue
            if isinstance(letter, Letter):
                topic, _, name = letter.subscription.rpartition("$")
                rows.append((each.dc, topic, name, letter.id, letter.timestamp_ms, letter.at_ms))
        yield pd.DataFrame(rows, columns=[each.split()[0] for each in GIVEN_UP.split(", ")])
