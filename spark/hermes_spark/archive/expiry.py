"""Retention of an archive: deletes whole hours when they are old enough."""

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from hermes_spark.archive.commits import Archive, Move
from hermes_spark.archive.layout import files_of, hour_text, hours_of, topics_of


class Deleted(NamedTuple):
    """How much of a topic was deleted."""

    topic: str
    hours: int
    records: int


def expire(archive: Archive, before_ms: int) -> Iterator[Deleted]:
    """Delete the hours that had ended by `before_ms`, by their records' timestamps, and record that
    in the manifest. Yields what was deleted, by topic.

    The hours of a topic are one commit; each disappears atomically. Raises OSError.
    """
    from pyarrow.parquet import read_metadata

    for topic in topics_of(archive.folder):
        old = [each for each in hours_of(archive.folder, topic) if each.end_ms <= before_ms]
        if not old:
            continue
        records = sum(
            read_metadata(path).num_rows
            for hour in old
            for path, _ in files_of(archive.folder, hour)
        )
        manifest = archive.manifest.with_expired(topic, hour_text(before_ms), len(old), records)
        archive.commit([Move(hour.path, archive.staging()) for hour in old], manifest)
        for date in {(archive.folder / hour.path).parent for hour in old}:
            with suppress(OSError):
                date.rmdir()
        yield Deleted(topic, len(old), records)
