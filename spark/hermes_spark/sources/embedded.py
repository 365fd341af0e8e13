"""`spark.read.format("hermes_embedded")`: an embedded log's file, even while a node writes it.

Options: `folder` (of the log), `dc`, and `topics`, a snapshot's ranges for that datacentre as JSON;
without it, everything in the log when the read is planned. The schema selects the common columns;
others are neither decoded nor shipped. A stream reads the current and future records of its topics
(a JSON list of names; default all).
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from sqlite3 import Connection
from typing import Any

import msgspec
from pyspark.sql import datasource
from pyspark.sql.pandas.types import to_arrow_schema

from hermes_actors.log.embedded.schema import (
    FILE_ERRORS,
    CorruptLog,
    PartitionRow,
    read_chunks,
    read_position_at,
)
from hermes_spark.columns import STORED
from hermes_spark.snapshot import PartitionRange
from hermes_spark.sources.embedded_file import EmbeddedFile
from hermes_spark.sources.entries import batches, decode
from hermes_spark.sources.failures import SourceFailed
from hermes_spark.sources.ranges import (
    NUMBERS,
    TEXTS,
    Condition,
    Piece,
    earliest_ms,
    narrowed,
    tasks,
)

FORMAT = "hermes_embedded"

_Ranges = dict[str, list[PartitionRange]]
_COMPARISONS = {
    datasource.EqualTo: "=",
    datasource.In: "in",
    datasource.LessThan: "<",
    datasource.LessThanOrEqual: "<=",
    datasource.GreaterThan: ">",
    datasource.GreaterThanOrEqual: ">=",
}


class EmbeddedSource(datasource.DataSource):
    """An embedded log as a Spark data source."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return FORMAT

    def schema(self) -> str:
        """All common columns, if the read selects none."""
        return STORED

    def reader(self, schema: Any) -> "EmbeddedReader":
        """The reader for a batch."""
        return EmbeddedReader(self.options, schema)

    def streamReader(self, schema: Any) -> "EmbeddedStreamReader":  # noqa: N802 -- Spark's name
        """The reader for a stream, in micro-batches."""
        return EmbeddedStreamReader(self.options, schema)


class _Rows:
    """The log in the options, read into the columns of a schema."""

    def __init__(self, options: Mapping[str, str], schema: Any) -> None:
        for name in ("folder", "dc"):
            if not options.get(name):
                raise SourceFailed(f"{FORMAT} needs the option {name}")
        self.dc = options["dc"]
        self.file = EmbeddedFile(options["folder"])
        self._schema = schema

    def batches(self, piece: Piece, from_ms: int | None = None) -> Iterator[Any]:
        """The records of the piece. Leading records older than `from_ms` may be left out.

        Raises SourceFailed if the log does not hold all of them, or they are damaged.
        """
        schema = to_arrow_schema(self._schema)
        place = f"{self.dc}: {piece.topic}/{piece.partition}"
        constants = {"dc": self.dc, "topic": piece.topic, "partition": piece.partition}
        try:
            with closing(self.file.open()) as connection:
                row = _held(connection, piece, place)
                start = piece.start
                if from_ms is not None:
                    start = max(start, min(read_position_at(connection, row, from_ms), piece.end))
                if start < piece.end:
                    chunks = read_chunks(connection, row.id, start, piece.end, decode)
                    yield from batches(chunks, schema, constants)
        except CorruptLog as error:
            raise SourceFailed(
                f"{place}: offsets {piece.start} to {piece.end - 1} cannot be read: {error}; "
                "restore the log's file, or start its node with --accept-damage and take a new "
                "snapshot"
            ) from error
        except FILE_ERRORS as error:
            raise SourceFailed(f"{place}: {self.file.path} cannot be read: {error}") from error


def _held(connection: Connection, piece: Piece, place: str) -> PartitionRow:
    """The row of the partition that holds the piece."""
    row = connection.execute(
        "SELECT partition.id, partition.start, partition.high_ms FROM partition"
        " JOIN topic ON topic.id = partition.topic_id WHERE topic.name = ? AND number = ?",
        (piece.topic, piece.partition),
    ).fetchone()
    if row is None:
        raise SourceFailed(f"{place} is no longer there; take a new snapshot")
    if row[1] > piece.start:
        raise SourceFailed(
            f"{place}: retention has removed offsets {piece.start} to {min(row[1], piece.end) - 1} "
            "since the snapshot; take a new one, and read the removed records from the archive"
        )
    return PartitionRow(row[0], piece.partition, row[1], piece.end, row[2])


class _Task(datasource.InputPartition):
    def __init__(self, piece: Piece, from_ms: int | None = None) -> None:
        super().__init__(None)
        self.piece = piece
        self.from_ms = from_ms


class EmbeddedReader(datasource.DataSourceReader):
    """Reads a snapshot's ranges, as far as the filters need them."""

    def __init__(self, options: Mapping[str, str], schema: Any) -> None:
        self._rows = _Rows(options, schema)
        self._topics = options.get("topics")
        self._conditions: list[Condition] = []

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802 -- Spark's name
        """Use filters that narrow the ranges; yield those that Spark must still apply."""
        for each in filters:
            comparison = _COMPARISONS.get(type(each))
            column = ".".join(getattr(each, "attribute", ()))
            can_narrow = (comparison in ("=", "in") and column in TEXTS) or column in NUMBERS
            if comparison is None or not can_narrow:
                yield each
                continue
            self._conditions.append(Condition(column, comparison, each.value))
            # A time bound only determines where to start.
            if column == "timestamp_ms":
                yield each

    def partitions(self) -> list[Any]:
        """Tasks of at most 250,000 records each."""
        if self._topics is not None:
            ranges = msgspec.json.decode(self._topics, type=_Ranges)
        else:
            ranges = self._rows.file.ranges()
        pieces = narrowed(self._rows.dc, ranges, self._conditions)
        from_ms = earliest_ms(self._conditions)
        return [_Task(piece, from_ms) for piece in tasks(pieces)]

    def read(self, partition: Any) -> Iterator[Any]:
        """Arrow batches of the task's piece. A read without tasks passes None."""
        if partition is not None:
            yield from self._rows.batches(partition.piece, partition.from_ms)


class EmbeddedStreamReader(datasource.DataSourceStreamReader):
    """Follows the log. A stream offset is `{topic: {partition: position}}`."""

    def __init__(self, options: Mapping[str, str], schema: Any) -> None:
        self._rows = _Rows(options, schema)
        names = options.get("topics")
        self._names = (
            None if names is None else frozenset(msgspec.json.decode(names, type=list[str]))
        )

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """The current start of each partition."""
        return self._positions("start")

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """The current end of each partition."""
        return self._positions("end")

    def _positions(self, side: str) -> dict[str, Any]:
        return {
            topic: {str(each.partition): getattr(each, side) for each in ranges}
            for topic, ranges in sorted(self._rows.file.ranges(self._names).items())
        }

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
        """Tasks from one stream offset to another. New topics and partitions start at 0."""
        ranges = {
            topic: [
                PartitionRange(int(number), start.get(topic, {}).get(number, 0), position)
                for number, position in positions.items()
            ]
            for topic, positions in end.items()
        }
        return [_Task(piece) for piece in tasks(narrowed(self._rows.dc, ranges, ()))]

    def read(self, partition: Any) -> Iterator[Any]:
        """Arrow batches of the task's piece."""
        yield from self._rows.batches(partition.piece)
