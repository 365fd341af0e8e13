"""Aggregates all facts about a message into one row."""

from collections.abc import Mapping, Sequence
from typing import Any

from hermes_spark.lives import topic_of
from hermes_spark.reconcile.flags import WAYS, Fact, place

NORMALISED = "topic STRING, message_id STRING, flags BIGINT, copies INT, at_ms BIGINT"
"""The columns to aggregate. `copies` is 1 for a stored record, else 0. `at_ms` is when the record
was published or the message acknowledged, null if unknown.
"""

YOUNG_MS = 60_000
"""A message acknowledged this shortly before the snapshot may be stored after it."""


def of_stored(rows: Any, dcs: Sequence[str]) -> Any:
    """Normalised rows of stored records with the columns dc, topic, timestamp_ms,
    message_id and via. The order of `dcs` numbers the datacentres.
    """
    from pyspark.sql import functions as f

    def bit(dc: int) -> Any:
        found = f.lit(place(dc, len(WAYS) - 1))
        for way, name in enumerate(WAYS[:-1]):
            found = f.when(f.col("via") == name, f.lit(place(dc, way))).otherwise(found)
        return found

    places = f.lit(0).cast("bigint")
    for number, dc in enumerate(dcs):
        places = f.when(f.col("dc") == dc, bit(number)).otherwise(places)
    return rows.select(
        topic_of("topic").alias("topic"),
        "message_id",
        places.alias("flags"),
        f.lit(1).alias("copies"),
        f.col("timestamp_ms").alias("at_ms"),
    )


def of_acknowledged(rows: Any, taken_at_ms: int, retained_from_ms: Mapping[str, int]) -> Any:
    """Normalised rows of `acknowledged`. `retained_from_ms` has, for each topic of which retention
    has removed records, the time since which nothing was removed.
    """
    from pyspark.sql import functions as f

    fact = f.when(f.col("status") == 201, int(Fact.ACKNOWLEDGED)).otherwise(int(Fact.KEPT))
    is_young = f.coalesce(f.col("sent_ms") > taken_at_ms - YOUNG_MS, f.lit(False))
    may_be_gone = f.lit(False)
    fact = fact.bitwiseOR(f.when(is_young, int(Fact.YOUNG)).otherwise(0))
    if retained_from_ms:
        limits = list(retained_from_ms.items())
        known = rows.sparkSession.createDataFrame(limits, "topic STRING, from_ms BIGINT")
        rows = rows.join(f.broadcast(known), "topic", "left")
        is_old = f.coalesce(f.col("sent_ms"), f.lit(0)) < f.col("from_ms")
        may_be_gone = f.coalesce(is_old, f.lit(False))
        fact = fact.bitwiseOR(f.when(may_be_gone, int(Fact.BEFORE_RETENTION)).otherwise(0))
    is_expected = (f.col("status") == 201) & ~is_young & ~may_be_gone
    fact = fact.bitwiseOR(f.when(is_expected, int(Fact.EXPECTED)).otherwise(0))
    return rows.select(
        "topic",
        "message_id",
        fact.cast("bigint").alias("flags"),
        f.lit(0).alias("copies"),
        f.col("sent_ms").alias("at_ms"),
    )


def of_fact(rows: Any, fact: Fact) -> Any:
    """Normalised rows that add a fact to each message (topic, message_id) of the rows."""
    from pyspark.sql import functions as f

    return rows.select(
        "topic",
        "message_id",
        f.lit(int(fact)).cast("bigint").alias("flags"),
        f.lit(0).alias("copies"),
        f.lit(None).cast("bigint").alias("at_ms"),
    )


def folded(normalised: Any) -> Any:
    """A row for each message: topic, message_id, flags, copies, and the earliest at_ms."""
    from pyspark.sql import functions as f

    # Most ids occur once on each side, so partial aggregation before the shuffle would only use
    # memory.
    together = normalised.repartition("topic", "message_id")
    return together.groupBy("topic", "message_id").agg(
        f.bit_or("flags").alias("flags"),
        f.sum("copies").alias("copies"),
        f.min("at_ms").alias("at_ms"),
    )
