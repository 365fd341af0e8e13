"""The layout of an archive's files, and the meaning of their names.

`records/` contains only Parquet files: `topic=…/date=…/hour=…/<dc>-<sequence>-<…>.parquet`. Staged
files, the manifest and the lock are outside, because some readers of `records/` also open hidden
files.
"""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from hermes_actors.model.moments import iso_ms

RECORDS = "records"
MANIFEST = "_manifest.json"
INTENT = "_intent.json"
LOCK = "_lock"
STAGING = "_staging"

HOUR_MS = 3_600_000
_NAME = re.compile(r"(?P<dc>.+)-(?P<sequence>[0-9]{8,})-(?:[0-9]+|c(?P<first>[0-9]+))\.parquet")


class Hour(NamedTuple):
    """An hour (UTC) of a topic, by its records' timestamps."""

    topic: str
    date: str
    hour: str

    @property
    def path(self) -> str:
        """Its folder, relative to the archive's."""
        return f"{RECORDS}/topic={self.topic}/date={self.date}/hour={self.hour}"

    @property
    def text(self) -> str:
        """Such as 2030-01-31T12. Sorting these texts sorts the hours."""
        return f"{self.date}T{self.hour}"

    @property
    def end_ms(self) -> int:
        """When the hour ends, Unix epoch."""
        begin = datetime.fromisoformat(f"{self.text}:00").replace(tzinfo=UTC)
        return int(begin.timestamp()) * 1_000 + HOUR_MS


class FileName(NamedTuple):
    """A file's name: its datacentre, and the first and last commit whose records it has."""

    dc: str
    first: int
    last: int


def hour_text(at_ms: int) -> str:
    """The hour of that moment, as `Hour.text`."""
    return iso_ms(at_ms)[:13]


def batch_file(dc: str, sequence: int, number: int) -> str:
    """The name of a batch's file; `number` distinguishes files of one hour and datacentre."""
    return f"{dc}-{sequence:08d}-{number}.parquet"


def compacted_file(dc: str, first: int, last: int) -> str:
    """The name of the file that replaces those of commits `first` to `last`.

    It is unique in its hour, because a file merged later has a later last commit.
    """
    return f"{dc}-{last:08d}-c{first}.parquet"


def parsed_file(name: str) -> FileName | None:
    """Parse a file's name; None if it is not the archive's."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    last = int(found["sequence"])
    return FileName(found["dc"], int(found["first"] or last), last)


def topics_of(folder: Path) -> list[str]:
    """The topics with archived records."""
    return _named(folder / RECORDS, "topic=")


def hours_of(folder: Path, topic: str) -> list[Hour]:
    """The archived hours of a topic, oldest first."""
    at = folder / RECORDS / f"topic={topic}"
    return [
        Hour(topic, date, hour)
        for date in _named(at, "date=")
        for hour in _named(at / f"date={date}", "hour=")
    ]


def _named(folder: Path, prefix: str) -> list[str]:
    if not folder.is_dir():
        return []
    names = (each.name for each in folder.iterdir())
    return sorted(name.removeprefix(prefix) for name in names if name.startswith(prefix))


def files_of(folder: Path, hour: Hour) -> list[tuple[Path, FileName]]:
    """The archive's files of that hour, sorted by name."""
    found = ((path, parsed_file(path.name)) for path in sorted((folder / hour.path).iterdir()))
    return [(path, name) for path, name in found if name is not None]
