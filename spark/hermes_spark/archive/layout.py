"""Where an archive's files lie, and what their names say.

`records/` has nothing but Parquet files: `topic=…/date=…/hour=…/<dc>-<sequence>-<…>.parquet`. What
is on its way there, the manifest and the lock lie beside it, where no reader of `records/` looks:
some readers open what has a hidden name too.
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
        """Such as 2030-01-31T12: texts of hours have the order of the hours."""
        return f"{self.date}T{self.hour}"

    @property
    def end_ms(self) -> int:
        """When it is over, Unix epoch."""
        begin = datetime.fromisoformat(f"{self.text}:00").replace(tzinfo=UTC)
        return int(begin.timestamp()) * 1_000 + HOUR_MS


class FileName(NamedTuple):
    """A file by its name: its datacentre, and the first and last commit that brought it."""

    dc: str
    first: int
    last: int


def hour_text(at_ms: int) -> str:
    """The hour of that moment, as `Hour.text`."""
    return iso_ms(at_ms)[:13]


def batch_file(dc: str, sequence: int, number: int) -> str:
    """The name of a batch's file; `number` tells those of one hour and datacentre apart."""
    return f"{dc}-{sequence:08d}-{number}.parquet"


def compacted_file(dc: str, first: int, last: int) -> str:
    """The name of the one file in place of those that commits `first` to `last` brought.

    No other file of the hour is called so: a file to be put together with it has a later last one.
    """
    return f"{dc}-{last:08d}-c{first}.parquet"


def parsed_file(name: str) -> FileName | None:
    """None for a file that is not the archive's."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    last = int(found["sequence"])
    return FileName(found["dc"], int(found["first"] or last), last)


def topics_of(folder: Path) -> list[str]:
    """The topics of which records are archived."""
    return _named(folder / RECORDS, "topic=")


def hours_of(folder: Path, topic: str) -> list[Hour]:
    """The hours of a topic that are archived, oldest first."""
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
    """The archive's files of that hour, in the order of their names."""
    found = ((path, parsed_file(path.name)) for path in sorted((folder / hour.path).iterdir()))
    return [(path, name) for path, name in found if name is not None]
