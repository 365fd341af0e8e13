"""Subscribers' journals, which say when each message was received: the files of `hermes sink`."""

from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from msgspec import Struct

from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_actors.errors import Refused
from hermes_actors.model.names import SubscriptionName

_LINE = "receivedMs BIGINT, messageId STRING, status INT"
DELIVERIES = (
    "topic STRING, subscription STRING, message_id STRING, attempted_ms BIGINT, "
    "delivered_ms BIGINT, times_delivered BIGINT, lines BIGINT"
)


class Journal(Struct, frozen=True):
    """The deliveries to one subscription: JSON lines with `receivedMs` (when a push came in, Unix
    epoch), `messageId`, and the answer's `status`. Other fields are ignored.
    """

    topic: str
    subscription: str
    path: str


def journal_of(text: str) -> Journal:
    """The journal in an option `group.topic$subscription=FILE`. Raises UsageWrong."""
    name, sign, path = text.partition("=")
    try:
        parsed = SubscriptionName.parse(name)
    except Refused as error:
        raise UsageWrong(
            f"--journal '{text}': write 'group.topic$subscription=FILE', in quotes"
        ) from error
    if not sign or not Path(path).is_file():
        raise UsageWrong(f"--journal '{text}': there is no file {path or 'named'}")
    return Journal(str(parsed.topic), parsed.name, str(Path(path).absolute()))


def deliveries(spark: Any, journals: Sequence[Journal]) -> Any:
    """A row for each message and subscription: when it was first pushed, when it was first accepted
    (null: not yet), and how often.

    Lines without message id or time, such as the last one of a killed sink, are counted together as
    `lines` of a message with a null id.
    """
    from pyspark.sql import functions as f

    if not journals:
        return spark.createDataFrame([], DELIVERIES)
    frames = [
        spark.read.schema(_LINE)
        .json(f"file://{each.path}")
        .select(
            f.lit(each.topic).alias("topic"), f.lit(each.subscription).alias("subscription"), "*"
        )
        for each in journals
    ]
    rows = reduce(lambda one, other: one.unionAll(other), frames)
    is_whole = f.col("messageId").isNotNull() & f.col("receivedMs").isNotNull()
    is_taken = f.col("status").between(200, 299)
    return rows.groupBy(
        "topic", "subscription", f.when(is_whole, f.col("messageId")).alias("message_id")
    ).agg(
        f.min("receivedMs").alias("attempted_ms"),
        f.min(f.when(is_taken, f.col("receivedMs"))).alias("delivered_ms"),
        f.count(f.when(is_taken, 1)).alias("times_delivered"),
        f.count(f.lit(1)).alias("lines"),
    )
