"""Rows of all datacentres' logs in the common columns, whichever log each of them has."""

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
    """A DataFrame with a row for each record that the snapshot's ranges hold: exactly those.

    `dcs` and `topics` (names without the namespace) are all where they are None. `columns` are
    those of `COLUMNS` that the job needs: the sources neither decode nor ship others. Conditions on
    dc, topic, partition, offset and timestamp_ms reach embedded logs' reader, which skips what they
    exclude; Kafka ships a topic's whole range. Running it fails where a log no longer holds all
    that the snapshot names. Raises SourceFailed for a datacentre that the snapshot does not have.
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
