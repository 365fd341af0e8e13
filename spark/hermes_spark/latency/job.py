"""The job: from a snapshot and subscribers' journals to tables in Parquet and a result."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from hermes_actors.model.names import RESERVED_GROUP
from hermes_spark.latency.journals import Journal, deliveries
from hermes_spark.latency.letters import given_up
from hermes_spark.latency.result import (
    ACCURACY,
    PERCENTS,
    Hedging,
    Latency,
    Repeated,
    Result,
    Stage,
    not_known,
)
from hermes_spark.reconcile.settled import subscriptions_of
from hermes_spark.snapshot import Snapshot
from hermes_spark.sources import stored
from hermes_spark.sources.failures import source_failures
from hermes_spark.tables import written

LATENCIES = "latencies"
HEDGING = "hedging"
"""The Parquet folders in the output. They have the rows of the result, and those of each hour."""
SEVERAL = "several"
_HOUR_MS = 3_600_000


def latency(
    spark: Any,
    snapshot: Snapshot,
    journals: Sequence[Journal],
    output: Path,
    topics: Collection[str] | None = None,
    say: Callable[[str], None] = print,
) -> Result:
    """Measure from the snapshot's records, dead letters and the journals. Write the tables into
    `output`, and return the result.

    `topics` None means all but the broker's own. `say` gets the progress. The same snapshot and
    journals give the same result. Raises SourceFailed if a log no longer holds the snapshot's
    records, and OSError.
    """
    output = output.absolute()
    own = snapshot.only(
        {
            topic
            for datacentre in snapshot.datacentres.values()
            for topic in datacentre.topics
            if not topic.startswith(f"{RESERVED_GROUP}.") and (topics is None or topic in topics)
        }
    )
    names = sorted({topic for each in own.datacentres.values() for topic in each.topics})
    with source_failures():
        messages = _messages(stored(spark, own, columns=_COLUMNS)).cache()
        say("what hedging has stored …")
        hedging = written(_hedging(messages), output / HEDGING)
        say("how long messages took …")
        taken = deliveries(spark, journals).cache()
        letters = given_up(spark, snapshot, names)
        spans = _delivered(spark, messages, taken, journals).unionByName(_given_up(letters))
        latencies = written(_percentiles(spans), output / LATENCIES)
        result = Result(
            snapshot.taken_at_ms,
            [Latency(*row) for row in _rows(latencies, Latency, "topic", "subscription", "stage")],
            [Hedging(*row) for row in _rows(hedging, Hedging, "topic")],
            _repeated(taken, messages),
            list(
                not_known(
                    names,
                    [(each.topic, each.subscription) for each in journals],
                    [(each.topic, each.name) for each in subscriptions_of(own)],
                )
            ),
        )
        messages.unpersist()
        taken.unpersist()
    result.save(output / "result.json")
    return result


_COLUMNS = ("dc", "topic", "timestamp_ms", "message_id", "published_dc", "via")


def _messages(rows: Any) -> Any:
    """A row for each message, its copies combined."""
    from pyspark.sql import functions as f

    is_one_place = f.min("dc") == f.max("dc")
    return rows.groupBy("topic", "message_id").agg(
        f.when(is_one_place, f.min("dc")).otherwise(SEVERAL).alias("dc"),
        f.min("timestamp_ms").alias("published_ms"),
        f.min("published_dc").alias("published_dc"),
        f.count(f.lit(1)).alias("copies"),
        f.count(f.when(f.col("via") == "hedge", 1)).alias("hedges"),
    )


def _hour() -> Any:
    from pyspark.sql import functions as f

    # The hour of publication. By arithmetic, so that the cluster's time zone has no effect.
    return (f.floor(f.col("published_ms") / _HOUR_MS) * _HOUR_MS).alias("hour_ms")


def _hedging(messages: Any) -> Any:
    """By topic, by publisher's datacentre, and by hour; null stands for all."""
    from pyspark.sql import functions as f

    hour = messages.withColumn("hour_ms", _hour()).withColumn(
        "published_dc", f.coalesce("published_dc", f.lit("unknown"))
    )
    is_hedged = f.col("hedges") > 0
    has_other = f.col("copies") > 1
    surplus = f.least(f.col("hedges"), f.col("copies") - 1)
    dc, at = f.col("published_dc"), f.col("hour_ms")
    topic = f.col("topic")
    return hour.groupingSets([[topic], [topic, dc], [topic, dc, at]], topic, dc, at).agg(
        f.count(f.lit(1)).alias("messages"),
        f.sum("copies").alias("copies"),
        f.count(f.when(is_hedged, 1)).alias("hedged"),
        f.count(f.when(is_hedged & ~has_other, 1)).alias("rescued"),
        f.count(f.when(is_hedged & has_other, 1)).alias("doubled"),
        f.sum(surplus).alias("surplus"),
    )


def _delivered(spark: Any, messages: Any, taken: Any, journals: Sequence[Journal]) -> Any:
    """A row for each message, each subscription with a journal, and each stage in the journal.
    `span_ms` is null if the journal lacks the message.
    """
    from pyspark.sql import functions as f

    pairs = sorted({(each.topic, each.subscription) for each in journals})
    subscribed = spark.createDataFrame(pairs, "topic STRING, subscription STRING")
    rows = messages.join(f.broadcast(subscribed), "topic").join(
        taken, ["topic", "subscription", "message_id"], "left"
    )
    stages = f.array(
        *(
            f.struct(
                f.lit(str(stage)).alias("stage"),
                (f.col(name) - f.col("published_ms")).alias("span_ms"),
            )
            for stage, name in (
                (Stage.FIRST_ATTEMPT, "attempted_ms"),
                (Stage.DELIVERED, "delivered_ms"),
            )
        )
    )
    return rows.select("topic", "subscription", "dc", _hour(), f.inline(stages))


def _given_up(letters: Any) -> Any:
    from pyspark.sql import functions as f

    return letters.select(
        *("topic", "subscription", "dc", _hour()),
        f.lit(str(Stage.GIVEN_UP)).alias("stage"),
        (f.col("at_ms") - f.col("published_ms")).alias("span_ms"),
    )


def _percentiles(spans: Any) -> Any:
    """By topic, subscription and stage, by datacentre, and by hour; null stands for all."""
    from pyspark.sql import functions as f

    whole = [f.col(name) for name in ("topic", "subscription", "stage")]
    dc, hour = f.col("dc"), f.col("hour_ms")
    grouped = spans.groupingSets([whole, [*whole, dc], [*whole, dc, hour]], *whole, dc, hour)
    found = grouped.agg(
        f.count(f.lit(1)).alias("messages"),
        f.count("span_ms").alias("known"),
        f.count(f.when(f.col("span_ms") < 0, 1)).alias("below_zero"),
        f.percentile_approx("span_ms", [each / 100 for each in PERCENTS], ACCURACY).alias("of"),
        f.max("span_ms").alias("max_ms"),
    )
    named = {f"p{each}_ms": f.get("of", f.lit(at)) for at, each in enumerate(PERCENTS)}
    return found.withColumns(named).drop("of")


def _rows(table: Any, kind: Any, *order: str) -> list[Any]:
    """The rows that are not of single hours, with this kind's fields, in a fixed order."""
    rows = table.where("hour_ms IS NULL").select(*kind.__struct_fields__).collect()
    key = [*order, next(name for name in ("dc", "published_dc") if name in kind.__struct_fields__)]
    return sorted(rows, key=lambda row: [row[name] or "" for name in key])


def _repeated(taken: Any, messages: Any) -> list[Repeated]:
    from pyspark.sql import functions as f

    has_id = f.col("message_id").isNotNull()
    known = messages.select("topic", "message_id", f.lit(True).alias("is_stored"))
    counts = (
        taken.join(known, ["topic", "message_id"], "left")
        .groupBy("topic", "subscription")
        .agg(
            f.count("message_id"),
            f.sum(f.when(has_id, f.greatest(f.col("times_delivered") - 1, f.lit(0))).otherwise(0)),
            f.count(f.when(has_id & f.col("is_stored").isNull(), 1)),
            f.sum(f.when(has_id, f.lit(0)).otherwise(f.col("lines"))),
        )
    )
    return [Repeated(*row) for row in sorted(counts.collect())]
