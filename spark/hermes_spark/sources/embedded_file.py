"""Reads an embedded log's topics, offsets and commits from its file, even while a node
writes it.
"""

from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from sqlite3 import Connection
from typing import TypeVar

from hermes_actors.log.embedded.schema import (
    FILE_ERRORS,
    FILE_NAME,
    TopicRow,
    open_read_only,
    read_topics,
)
from hermes_spark.snapshot import Committed, PartitionRange
from hermes_spark.sources.failures import SourceFailed

T = TypeVar("T")


class EmbeddedFile:
    """Queries the log in that folder; each query is consistent. All methods raise SourceFailed."""

    def __init__(self, folder: str) -> None:
        self.path = Path(folder) / FILE_NAME

    def open(self) -> Connection:
        """A read-only connection, usable from any one thread. Also raises sqlite3.Error."""
        if not self.path.is_file():
            raise SourceFailed(f"there is no embedded log at {self.path}; name its node's folder")
        return open_read_only(self.path)

    def topics(self) -> list[str]:
        """The names of all topics."""
        return [row.name for row in self._look(read_topics)]

    def ranges(self, topics: Iterable[str] | None = None) -> dict[str, list[PartitionRange]]:
        """The current offsets of these topics (None: all); missing topics are left out."""
        wanted = None if topics is None else frozenset(topics)
        return {
            row.name: [PartitionRange(each.number, each.start, each.end) for each in row.partitions]
            for row in self._look(_topics_of_one_moment)
            if wanted is None or row.name in wanted
        }

    def commits(self) -> dict[str, dict[str, list[Committed]]]:
        """The commits of all consumer groups, by group and topic."""
        found: dict[str, dict[str, list[Committed]]] = {}
        for group, topic, partition, position, metadata in self._look(_commits):
            commits = found.setdefault(group, {}).setdefault(topic, [])
            commits.append(Committed(partition, position, metadata))
        return found

    def _look(self, read: Callable[[Connection], T]) -> T:
        try:
            with closing(self.open()) as connection:
                return read(connection)
        except FILE_ERRORS as error:
            raise SourceFailed(f"{self.path} cannot be read: {error}") from error


def _topics_of_one_moment(connection: Connection) -> list[TopicRow]:
    connection.execute("BEGIN")
    return read_topics(connection)


def _commits(connection: Connection) -> list[tuple[str, str, int, int, str]]:
    return connection.execute(
        "SELECT group_name, topic.name, partition, position, metadata FROM group_commit"
        " JOIN topic ON topic.id = topic_id ORDER BY group_name, topic.name, partition"
    ).fetchall()
