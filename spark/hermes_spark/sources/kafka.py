"""Reads Kafka through Spark's own source: exactly a snapshot's offsets."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hermes_spark.columns import from_kafka
from hermes_spark.snapshot import Datacentre, KafkaLog
from hermes_spark.sources.failures import SourceFailed
from hermes_spark.sources.ranges import TASK_RECORDS

ISOLATION = "isolation.level"
_FROM_HEADERS = frozenset({"message_id", "published_dc", "via", "headers"})


def stored_in_kafka(spark: Any, dc: str, datacentre: Datacentre, columns: Sequence[str]) -> Any:
    """The rows of one datacentre, for `stored`."""
    assert isinstance(datacentre.log, KafkaLog), "the caller looks"
    prefix = datacentre.topic_prefix
    ranges = {
        f"{prefix}{topic}": {str(each.partition): each for each in ranges if each.start < each.end}
        for topic, ranges in datacentre.topics.items()
    }
    ranges = {topic: partitions for topic, partitions in ranges.items() if partitions}
    rows = (
        spark.read.format("kafka")
        .options(**{f"kafka.{name}": value for name, value in client_options(datacentre.log)})
        .option("assign", _json({topic: [int(each) for each in ranges[topic]] for topic in ranges}))
        .option("startingOffsets", _offsets(ranges, "start"))
        .option("endingOffsets", _offsets(ranges, "end"))
        .option("includeHeaders", str(not _FROM_HEADERS.isdisjoint(columns)).lower())
        .option("maxRecordsPerPartition", TASK_RECORDS)
        # An incomplete range is a failure, not a shorter result.
        .option("failOnDataLoss", "true")
        .load()
    )
    return from_kafka(rows, dc, prefix, columns)


def client_options(log: KafkaLog) -> list[tuple[str, str]]:
    """The options of Kafka's client, including those in its properties file. Only committed records
    are read, as the nodes do, unless the file says otherwise.

    Raises SourceFailed if the file cannot be read.
    """
    options = {"bootstrap.servers": log.bootstrap_servers, ISOLATION: "read_committed"}
    if log.client_properties:
        try:
            options |= properties(Path(log.client_properties).read_text())
        except (OSError, UnicodeDecodeError, ValueError) as error:
            raise SourceFailed(
                f"{log.client_properties}, the options of Kafka's client, cannot be read: {error}"
            ) from error
    return sorted(options.items())


def properties(text: str) -> dict[str, str]:
    """Parse Java properties: `name=value` lines, `#` comments, backslash continuations. Raises
    ValueError for a line without name or value; the error does not contain its text.
    """
    found = {}
    lines = iter(enumerate(text.splitlines(), start=1))
    for number, line in lines:
        line = line.strip()
        while line.endswith("\\"):
            line = line[:-1] + next(lines, (0, ""))[1].strip()
        if not line or line[0] in "#!":
            continue
        name, sign, value = line.partition("=")
        if not sign or not name.strip():
            raise ValueError(f"line {number} is not name=value")
        found[name.strip()] = value.strip()
    return found


def _offsets(ranges: Mapping[str, Mapping[str, Any]], side: str) -> str:
    return _json(
        {
            topic: {number: getattr(each, side) for number, each in partitions.items()}
            for topic, partitions in ranges.items()
        }
    )


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
