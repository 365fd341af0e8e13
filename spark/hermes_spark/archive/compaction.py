"""Compaction: merges the files of past hours into one file for each datacentre."""

import shutil
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from hermes_spark.archive.append import COMPRESSION
from hermes_spark.archive.commits import Archive, Move
from hermes_spark.archive.layout import (
    HOUR_MS,
    FileName,
    Hour,
    compacted_file,
    files_of,
    hours_of,
    topics_of,
)

CLOSED_AFTER_MS = HOUR_MS
"""An hour is closed this long after its end, when few records can still come for it."""
GROUP_BYTES = 64 << 20
"""Approximate size of a row group before compression, which bounds a merge's memory."""
_READ_BYTES = 4 << 20
_MOSTLY_DIFFERENT = frozenset(
    {"offset", "timestamp_ms", "value", "message_id", "headers.list.element.value"}
)
"""Columns that would only grow with a dictionary."""

Found = Sequence[tuple[Path, FileName]]


def compact(archive: Archive, now_ms: int) -> Iterator[Hour]:
    """Merge the files of each closed hour, if a datacentre has more than one. Yields the hours when
    done.

    Each hour is a commit: readers that list its folder find either the old files or the new ones. A
    reader that has listed the old ones but not opened them finds them gone. Raises OSError.
    """
    for topic in topics_of(archive.folder):
        for hour in hours_of(archive.folder, topic):
            if hour.end_ms + CLOSED_AFTER_MS > now_ms:
                continue
            merges = [each for each in _by_dc(files_of(archive.folder, hour)) if len(each) > 1]
            if merges:
                _compact(archive, hour, merges)
                yield hour


def _by_dc(found: Found) -> Iterator[Found]:
    by_dc = sorted(found, key=lambda each: (each[1].dc, each[1].last, each[0].name))
    for _, of_one in groupby(by_dc, key=lambda each: each[1].dc):
        yield list(of_one)


def _compact(archive: Archive, hour: Hour, merges: Sequence[Found]) -> None:
    staged = archive.staging()
    folder = archive.folder / staged
    folder.mkdir(parents=True)
    names = []
    for each in merges:
        first = min(name.first for _, name in each)
        names.append(compacted_file(each[0][1].dc, first, each[-1][1].last))
        merge([path for path, _ in each], folder / names[-1])
    merged = {path for each in merges for path, _ in each}
    for path in sorted((archive.folder / hour.path).iterdir()):
        if path not in merged:
            shutil.copyfile(path, folder / path.name)
    archive.commit([Move(staged, hour.path, names[0])], archive.manifest.next())


def merge(paths: Sequence[Path], target: Path) -> None:
    """Write a Parquet file with the rows of these files, in order, in bounded memory. Raises
    OSError.
    """
    from pyarrow import Table
    from pyarrow.parquet import ParquetFile, ParquetWriter, read_metadata, read_schema

    columns = read_metadata(paths[0]).schema
    places = [columns.column(at).path for at in range(len(columns))]
    with ParquetWriter(
        target,
        read_schema(paths[0]),
        compression=COMPRESSION,
        use_dictionary=[each for each in places if each not in _MOSTLY_DIFFERENT],
    ) as writer:
        waiting: list[Any] = []
        size = 0
        for path in paths:
            with ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size=_batch_rows(file.metadata)):
                    waiting.append(batch)
                    size += batch.nbytes
                    if size >= GROUP_BYTES:
                        writer.write_table(Table.from_batches(waiting))
                        waiting, size = [], 0
        if waiting:
            writer.write_table(Table.from_batches(waiting))


def _batch_rows(metadata: Any) -> int:
    """The average number of rows in a few megabytes."""
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    size = sum(each.total_byte_size for each in groups)
    return int(max(1, min(10_000, _READ_BYTES * metadata.num_rows // max(1, size))))
