"""The contents of an archive by topic and datacentre."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes_actors.cli.output.render import show_rows, write_json
from hermes_spark.archive.commits import load_manifest
from hermes_spark.archive.layout import files_of, hours_of, topics_of
from hermes_spark.archive.manifest import ArchivedPartition


class Kept(Struct):
    """The files of a topic and datacentre. Hours look like 2030-01-31T12; empty strings without
    files.
    """

    files: int = 0
    bytes: int = 0
    first_hour: str = ""
    last_hour: str = ""


class Contents(Struct, frozen=True):
    """One topic of one datacentre. `records` were archived in total, `gap_offsets` were missed;
    `kept` is what retention and compaction have left; retention has deleted all hours before
    `expired_before`, an empty string for none.
    """

    dc: str
    topic: str
    records: int
    gap_offsets: int
    expired_before: str
    kept: Kept
    partitions: Sequence[ArchivedPartition]


def contents(folder: Path) -> list[Contents]:
    """Each archived topic, by name. Raises LaunchFailed, OSError."""
    manifest = load_manifest(folder)
    kept: defaultdict[tuple[str, str], Kept] = defaultdict(Kept)
    for topic in topics_of(folder):
        for hour in hours_of(folder, topic):
            for path, name in files_of(folder, hour):
                each = kept[name.dc, topic]
                each.files += 1
                each.bytes += path.stat().st_size
                each.first_hour = each.first_hour or hour.text
                each.last_hour = hour.text
    found = []
    for dc, topics in manifest.topics.items():
        for topic, held in topics.items():
            expired = manifest.expired.get(topic)
            found.append(
                Contents(
                    dc,
                    topic,
                    held.records,
                    sum(each.gap_offsets for each in held.partitions),
                    "" if expired is None else expired.before,
                    kept[dc, topic],
                    held.partitions,
                )
            )
    return sorted(found, key=lambda each: (each.topic, each.dc))


def show(found: Sequence[Contents], as_json: bool) -> None:
    """Print a table, or JSON with the partitions."""
    if as_json:
        write_json(msgspec.json.encode(found))
        return
    show_rows(
        ("Topic", "DC", "Records", "Missing", "First hour", "Last hour", "Files", "MiB"),
        [
            (
                each.topic,
                each.dc,
                f"{each.records:,}",
                f"{each.gap_offsets:,}",
                each.kept.first_hour or "-",
                each.kept.last_hour or "-",
                f"{each.kept.files:,}",
                f"{each.kept.bytes / 2**20:,.1f}",
            )
            for each in found
        ],
        "nothing is archived",
    )
