"""Appends new records of the logs to an archive, in batches of bounded size."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from hermes_spark.archive.commits import Archive, Move
from hermes_spark.archive.layout import HOUR_MS, RECORDS, batch_file
from hermes_spark.archive.manifest import Faced, Ranges, batches, faced, unarchived
from hermes_spark.snapshot import Snapshot
from hermes_spark.sources import stored
from hermes_spark.sources.failures import source_failures

BATCH_OFFSETS = 1_000_000
"""Offsets in one batch, whose records become visible together. An interrupted batch is
made again.
"""
COMPRESSION = "zstd"

_DAY_HOURS = 24
# The days of 0001-01-01 and 9999-12-31. Timestamps outside are archived there.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_DC = "_dc"
_PLACE = (_DC, "topic", "date", "hour")


class Progress(NamedTuple):
    """How many offsets a run has archived, and how many it will archive in total."""

    offsets: int
    offsets_total: int


def append(
    session: Callable[[], Any],
    archive: Archive,
    snapshot: Snapshot,
    offsets_max: int = BATCH_OFFSETS,
    told: Callable[[Progress], None] = lambda _: None,
) -> Faced:
    """Archive the snapshot's records that the archive lacks, at most `offsets_max` offsets at a
    time. Return what was missed.

    `session` returns the Spark session, and is not called if there is nothing to do; `told` is
    called after each batch. Raises SourceFailed if a log no longer holds the snapshot's records,
    and OSError; completed batches stay.
    """
    found = faced(archive.manifest, snapshot)
    is_changed = found.manifest.topics != archive.manifest.topics
    missing = unarchived(found.manifest, snapshot)
    if not is_changed and not missing:
        return found
    archive.commit((), found.manifest)
    done, total = 0, _offsets(missing)
    for batch in batches(missing, offsets_max):
        staged = archive.staging()
        spark = session()
        with source_failures():
            _write(spark, _cut(snapshot, batch), archive.folder / staged)
        moves, records = _moves(archive, staged)
        archive.commit(moves, archive.manifest.with_batch(batch, records))
        done += _offsets(batch)
        told(Progress(done, total))
    return found


def _offsets(ranges: Ranges) -> int:
    return sum(
        each.end - each.start
        for topics in ranges.values()
        for pieces in topics.values()
        for each in pieces
    )


def _cut(snapshot: Snapshot, batch: Ranges) -> Snapshot:
    """The snapshot restricted to the batch's ranges."""
    return msgspec.structs.replace(
        snapshot,
        datacentres={
            dc: msgspec.structs.replace(snapshot.datacentres[dc], topics=topics)
            for dc, topics in batch.items()
        },
    )


def _write(spark: Any, batch: Snapshot, folder: Path) -> None:
    """Write the batch's records as Parquet: a few files for each datacentre, topic and hour."""
    from pyspark.sql import functions as f

    rows = stored(spark, batch)
    hours = f.floor(f.col("timestamp_ms") / HOUR_MS)
    days = f.greatest(
        f.lit(_FIRST_DAY), f.least(f.lit(_LAST_DAY), f.floor(hours / _DAY_HOURS))
    ).cast("int")
    placed = rows.withColumns(
        {
            _DC: f.col("dc"),
            # By arithmetic, so that the cluster's time zone has no effect.
            "date": f.date_add(f.lit("1970-01-01").cast("date"), days).cast("string"),
            "hour": f.lpad(f.pmod(hours, f.lit(_DAY_HOURS)).cast("string"), 2, "0"),
        }
    )
    # One task writes what several read, so there are as many files as cores, not as reads.
    (
        placed.coalesce(spark.sparkContext.defaultParallelism)
        .sortWithinPartitions(*_PLACE, "partition", "offset")
        .write.partitionBy(*_PLACE)
        .option("compression", COMPRESSION)
        .parquet(f"file://{folder.absolute()}")
    )


def _moves(archive: Archive, staged: str) -> tuple[list[Move], dict[tuple[str, str], int]]:
    """The targets of the staged files, and their number of records by datacentre and topic."""
    from pyarrow.parquet import read_metadata

    moves: list[Move] = []
    records: Counter[tuple[str, str]] = Counter()
    numbers: Counter[tuple[str, ...]] = Counter()
    sequence = archive.manifest.sequence + 1
    pattern = "/".join(f"{name}=*" for name in _PLACE)
    for path in sorted((archive.folder / staged).glob(f"{pattern}/*.parquet")):
        place = path.relative_to(archive.folder / staged).parts[:-1]
        dc, topic = (each.partition("=")[2] for each in place[:2])
        name = batch_file(dc, sequence, numbers[place])
        numbers[place] += 1
        records[dc, topic] += read_metadata(path).num_rows
        source = str(path.relative_to(archive.folder))
        moves.append(Move(source, "/".join((RECORDS, *place[1:], name))))
    return moves, dict(records)
