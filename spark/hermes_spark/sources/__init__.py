"""Rows of all datacentres' logs in the common columns, whatever kind of log each has."""

from collections.abc import Collection, Sequence
from functools import reduce
from typing import Any

import msgspec

from hermes_spark.columns import COLUMNS, schema_of
from hermes_spark.snapshot import Datacentre, KafkaLog, Snapshot
from hermes_spark.sources.failures import SourceFailed


def stored(
    spark: Any,
    snapshot: Snapshot,
    dcs: Collection[str] | None = None,
    topics: Collection[str] | None = None,
    columns: Sequence[str] = COLUMNS,
) -> Any:
    """A DataFrame with a row for each record in the snapshot's ranges, exactly those.

    `dcs` and `topics` (names without the namespace) None means all. `columns` are those of
    `COLUMNS` that the job needs; others are neither decoded nor shipped. Conditions on dc, topic,
    partition, offset and timestamp_ms reach embedded logs' reader, which skips excluded records;
    Kafka ships a topic's whole range. Running it fails if a log no longer holds all of the
    snapshot's records. Raises SourceFailed for a datacentre that the snapshot lacks.
    """
    for name in dcs or ():
        if name not in snapshot.datacentres:
            raise SourceFailed(
                f"the snapshot has no datacentre {name}; it has "
                f"{', '.join(snapshot.datacentres) or 'none'}"
            )
    cut = snapshot if topics is None else snapshot.only(topics)
    frames = [
        _of_one(spark, name, datacentre, columns)
        for name, datacentre in cut.datacentres.items()
        if (dcs is None or name in dcs) and datacentre.records
    ]
    if not frames:
        return spark.createDataFrame([], schema_of(columns))
    return reduce(lambda one, other: one.unionAll(other), frames)


def _of_one(spark: Any, dc: str, datacentre: Datacentre, columns: Sequence[str]) -> Any:
    if isinstance(datacentre.log, KafkaLog):
        from hermes_spark.sources.kafka import stored_in_kafka

        return stored_in_kafka(spark, dc, datacentre, columns)
    from hermes_spark.sources.embedded import FORMAT, EmbeddedSource

    spark.dataSource.register(EmbeddedSource)
    return (
        spark.read.format(FORMAT)
        .schema(schema_of(columns))
        .options(
            dc=dc,
            folder=datacentre.log.folder,
            topics=msgspec.json.encode(datacentre.topics).decode(),
        )
        .load()
    )
