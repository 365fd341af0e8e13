"""The job: from a snapshot and lists of acknowledged messages to tables in Parquet and a result."""

from collections.abc import Callable, Collection, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import msgspec

from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_actors.model.message import Via
from hermes_actors.model.names import RESERVED_GROUP
from hermes_spark.lives import life_of, topic_of
from hermes_spark.reconcile.acknowledged import AcknowledgedList, acknowledged
from hermes_spark.reconcile.flags import DATACENTRES_MAX, Fact, Fate, fate_of
from hermes_spark.reconcile.folding import (
    YOUNG_MS,
    folded,
    of_acknowledged,
    of_fact,
    of_stored,
)
from hermes_spark.reconcile.letters import open_letters
from hermes_spark.reconcile.registered import registered
from hermes_spark.reconcile.result import (
    Combination,
    Result,
    SubscriptionCount,
    subscription_results,
    topic_results,
)
from hermes_spark.reconcile.settled import SubscriptionSettled, subscriptions_of, tails
from hermes_spark.snapshot import PartitionRange, Snapshot
from hermes_spark.sources import stored
from hermes_spark.sources.failures import source_failures
from hermes_spark.tables import written

MESSAGES = "messages"
UNSETTLED = "unsettled"
LETTERS = "dead-letters"
"""The Parquet folders in the output: a row for each message, for each stored record that a
subscription has not settled, and for each open dead letter.
"""
HEAD_RECORDS = 200
"""How many of a partition's first records are searched for one that was not spooled."""
LOST_SHOWN_MAX = 50
"""Maximum number of lost ids in the result for each topic; `messages` has all."""

_GAPS = (
    "dc STRING, topic STRING, partition INT, subscription STRING, gap_start BIGINT, gap_end BIGINT"
)


def reconcile(
    spark: Any,
    snapshot: Snapshot,
    lists: Sequence[AcknowledgedList],
    output: Path,
    topics: Collection[str] | None = None,
    say: Callable[[str], None] = print,
) -> Result:
    """Compare all datacentres of the snapshot, write the tables into `output`, and return the
    result.

    `topics` None means all but the broker's own and those of the lists. `say` gets the progress.
    The same snapshot and lists give the same result. Raises UsageWrong for more than nine
    datacentres, and for a topic that neither a datacentre nor a list knows; SourceFailed if a log
    no longer holds the snapshot's records, or a list cannot be read.
    """
    with source_failures():
        return _reconcile(spark, snapshot, lists, output, topics, say)


def _reconcile(
    spark: Any,
    snapshot: Snapshot,
    lists: Sequence[AcknowledgedList],
    output: Path,
    topics: Collection[str] | None,
    say: Callable[[str], None],
) -> Result:
    dcs = sorted(snapshot.datacentres)
    if len(dcs) > DATACENTRES_MAX:
        raise UsageWrong(
            f"{len(dcs)} datacentres are more than the {DATACENTRES_MAX} that one run compares; "
            "leave some out"
        )
    said_in = {each.stored_in for each in lists}
    published = [
        topic
        for datacentre in snapshot.datacentres.values()
        for topic in datacentre.topics
        if not topic.startswith(f"{RESERVED_GROUP}.") and _is_compared(topic, topics, said_in)
    ]
    own = snapshot.only(published)
    subscriptions = subscriptions_of(own, registered(spark, snapshot))

    records = sum(each.records for each in own.datacentres.values())
    say(f"records: {records:,}; topics: {len(set(published))}; datacentres: {len(dcs)}")
    say(f"what is not settled; subscriptions: {len(subscriptions)} …")
    unsettled = written(_unsettled(spark, own, subscriptions), output / UNSETTLED)
    say("open dead letters …")
    letters = open_letters(spark, snapshot)
    if topics is not None:
        letters = letters.where(letters["topic"].isin(*topics))
    letters = written(letters, output / LETTERS)

    say("which message is stored where …")
    columns = ["dc", "topic", "timestamp_ms", "message_id", "via"]
    normalised = [of_stored(stored(spark, own, columns=columns), dcs)]
    if lists:
        listed = acknowledged(spark, lists, snapshot)
        if topics is not None:
            listed = listed.where(listed["topic"].isin(*topics))
        retained = _retained_from_ms(spark, own)
        normalised.append(of_acknowledged(listed, snapshot.taken_at_ms, retained))
    normalised += [of_fact(unsettled, Fact.UNSETTLED), of_fact(letters, Fact.DEAD_LETTERED)]
    messages = folded(reduce(lambda one, other: one.unionAll(other), normalised))
    messages = written(messages, output / MESSAGES)

    combinations = [
        Combination(row.topic, row.flags, row.copies, row.messages)
        for row in _counted(messages, "topic", "flags", "copies").collect()
    ]
    known = {*(life_of(each)[0] for each in published), *(each.topic for each in combinations)}
    for topic in topics or ():
        if topic not in known:
            raise UsageWrong(f"--topic {topic}: no datacentre and no list has that topic")
    result = Result(
        snapshot.taken_at_ms,
        dcs,
        bool(lists),
        topic_results(combinations, dcs, _lost_ids(messages, combinations)),
        subscription_results(subscriptions, _counts(unsettled, letters, own)),
    )
    result.save(output / "result.json")
    return result


def _is_compared(log_topic: str, topics: Collection[str] | None, said_in: set[str]) -> bool:
    topic = life_of(log_topic)[0]
    # A foreign topic in the same cluster may have any name.
    return ("." in topic and topic not in said_in) if topics is None else topic in topics


def _counted(rows: Any, *columns: str) -> Any:
    from pyspark.sql import functions as f

    return rows.groupBy(*columns).agg(f.count(f.lit(1)).alias("messages"))


def _unsettled(spark: Any, snapshot: Snapshot, subscriptions: list[SubscriptionSettled]) -> Any:
    """A row for each stored record and each subscription that has not settled it."""
    from pyspark.sql import functions as f

    gaps = [
        (part.dc, each.log_topic, gap.partition, each.name, gap.start, gap.end)
        for each in subscriptions
        for part in each.partitions
        for gap in part.unsettled()
    ]
    columns = ["dc", "topic", "partition", "offset", "timestamp_ms", "message_id"]
    rows = stored(spark, tails(snapshot, subscriptions), columns=columns)
    lies_in = f.col("offset").between(f.col("gap_start"), f.col("gap_end") - 1)
    return (
        rows.join(f.broadcast(spark.createDataFrame(gaps, _GAPS)), ["dc", "topic", "partition"])
        .where(lies_in)
        .select(
            topic_of("topic").alias("topic"),
            "subscription",
            "dc",
            "partition",
            "offset",
            "timestamp_ms",
            "message_id",
        )
    )


def _retained_from_ms(spark: Any, snapshot: Snapshot) -> dict[str, int]:
    """By topic of which retention has removed records: the time since which nothing was removed.

    That is the time of the first record in partitions that no longer begin at 0, the latest of all
    of them, plus a minute for messages published at the same time; if such a partition is empty,
    the time of the snapshot. Spooled records are older than their neighbours, and are skipped. A
    topic that was created again may have lost older records.
    """
    from pyspark.sql import functions as f

    heads: dict[str, dict[str, list[PartitionRange]]] = {}
    found: dict[str, int] = {}
    for dc, datacentre in snapshot.datacentres.items():
        for log_topic, ranges in datacentre.topics.items():
            topic, life = life_of(log_topic)
            if life:
                found[topic] = max(found.get(topic, 0), life)
            for each in ranges:
                if each.start and each.start == each.end:
                    found[topic] = snapshot.taken_at_ms
                elif each.start:
                    end = min(each.start + HEAD_RECORDS, each.end)
                    head = PartitionRange(each.partition, each.start, end)
                    heads.setdefault(dc, {}).setdefault(log_topic, []).append(head)
    if not heads:
        return found
    first = msgspec.structs.replace(
        snapshot,
        datacentres={
            dc: msgspec.structs.replace(datacentre, topics=heads.get(dc, {}))
            for dc, datacentre in snapshot.datacentres.items()
        },
    )
    columns = ["dc", "topic", "partition", "offset", "timestamp_ms", "via"]
    rows = stored(spark, first, columns=columns)
    is_in_time = (f.coalesce("via", f.lit("")) != Via.SPOOL.value) & (f.col("timestamp_ms") > 0)
    at_ms = f.min_by(f.when(is_in_time, f.col("timestamp_ms")), f.when(is_in_time, f.col("offset")))
    begins = rows.groupBy("dc", "topic", "partition").agg(at_ms.alias("at_ms"))
    from_ms = f.max(f.coalesce(f.col("at_ms") + YOUNG_MS, f.lit(snapshot.taken_at_ms)))
    topic = topic_of("topic").alias("topic")
    for row in begins.groupBy(topic).agg(from_ms.alias("from_ms")).collect():
        found[row.topic] = max(found.get(row.topic, 0), row.from_ms)
    return found


def _lost_ids(messages: Any, combinations: Sequence[Combination]) -> dict[str, list[str]]:
    """The first lost ids of each topic."""
    from pyspark.sql import functions as f
    from pyspark.sql.window import Window

    lost = sorted({each.flags for each in combinations if fate_of(each.flags) is Fate.LOST})
    if not lost:
        return {}
    number = f.row_number().over(Window.partitionBy("topic").orderBy("message_id"))
    rows = messages.where(f.col("flags").isin(*lost)).withColumn("number", number)
    found: dict[str, list[str]] = {}
    for row in rows.where(f.col("number") <= LOST_SHOWN_MAX).orderBy("topic", "number").collect():
        found.setdefault(row.topic, []).append(row.message_id)
    return found


def _counts(unsettled: Any, letters: Any, snapshot: Snapshot) -> list[SubscriptionCount]:
    from pyspark.sql import functions as f

    subscription = ("topic", "subscription", "dc")
    ends = [
        (dc, datacentre.topic_prefix + topic, each.partition, each.end)
        for dc, datacentre in snapshot.datacentres.items()
        for topic, ranges in datacentre.topics.items()
        for each in ranges
    ]
    columns = "dc STRING, log_topic STRING, partition INT, end BIGINT"
    known = f.broadcast(letters.sparkSession.createDataFrame(ends, columns))
    name = f.substring_index("subscription", "$", -1)
    given_up = letters.join(known, ["dc", "log_topic", "partition"], "left").withColumn(
        "subscription", name
    )
    late = unsettled.groupBy(*subscription).agg(f.count(f.lit(1)), f.min("timestamp_ms"))
    lost = f.count(f.when(f.col("offset") >= f.col("end"), 1))
    given_up = given_up.groupBy(*subscription).agg(f.count(f.lit(1)), lost)
    # A row for each subscription and datacentre, combined here.
    late_by_name = {tuple(row[:3]): tuple(row[3:]) for row in late.collect()}
    given_up_by_name = {tuple(row[:3]): tuple(row[3:]) for row in given_up.collect()}
    return [
        SubscriptionCount(
            *each, *late_by_name.get(each, (0, None)), *given_up_by_name.get(each, (0, 0))
        )
        for each in sorted(late_by_name.keys() | given_up_by_name.keys())
    ]
