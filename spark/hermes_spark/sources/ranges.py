"""Which offsets a read needs, and their division into tasks. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from hermes_spark.snapshot import PartitionRange

TASK_RECORDS = 250_000
"""Records per task: enough that a task's overhead hardly matters."""

NUMBERS = ("partition", "offset", "timestamp_ms")
TEXTS = ("dc", "topic")


class Piece(Struct, frozen=True):
    """The offsets from `start` up to below `end` of one partition."""

    topic: str
    partition: int
    start: int
    end: int


class Condition(NamedTuple):
    """A column compared with a value by `=`, `in` (any of a tuple), `<`, `<=`, `>` or `>=`."""

    column: str
    comparison: str
    value: Any


_HOLDS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": lambda held, value: bool(held == value),
    "in": lambda held, value: held in value,
    "<": lambda held, value: bool(held < value),
    "<=": lambda held, value: bool(held <= value),
    ">": lambda held, value: bool(held > value),
    ">=": lambda held, value: bool(held >= value),
}


def narrowed(
    dc: str,
    topics: Mapping[str, Sequence[PartitionRange]],
    conditions: Iterable[Condition],
) -> list[Piece]:
    """The non-empty ranges that may have records for which all conditions hold.

    Conditions on `dc`, `topic`, `partition` and `offset` then hold for all their records; other
    conditions are ignored.
    """
    conditions = list(conditions)
    pieces = []
    for topic, ranges in sorted(topics.items()):
        for each in ranges:
            held = {"dc": dc, "topic": topic, "partition": each.partition}
            if not all(
                _HOLDS[comparison](held[column], value)
                for column, comparison, value in conditions
                if column in held
            ):
                continue
            for start, end in _offsets(each.start, each.end, conditions):
                pieces.append(Piece(topic, each.partition, start, end))
    return pieces


def _offsets(start: int, end: int, conditions: list[Condition]) -> list[tuple[int, int]]:
    """The ranges within [start, end) that fulfil the conditions on the offset."""
    single: set[int] | None = None
    for column, comparison, value in conditions:
        if column != "offset":
            continue
        if comparison in ("=", "in"):
            given = set(value if comparison == "in" else (value,))
            single = given if single is None else single & given
        elif comparison in ("<", "<="):
            end = min(end, value + (comparison == "<="))
        else:
            start = max(start, value + (comparison == ">"))
    if single is None:
        return [(start, end)] if start < end else []
    return [(offset, offset + 1) for offset in sorted(single) if start <= offset < end]


def earliest_ms(conditions: Iterable[Condition]) -> int | None:
    """The lowest timestamp that the conditions allow; None without a lower bound."""
    bounds = [
        condition.value + (condition.comparison == ">")
        for condition in conditions
        if condition.column == "timestamp_ms" and condition.comparison in ("=", ">", ">=")
    ]
    return max(bounds, default=None)


def tasks(pieces: Iterable[Piece], records: int = TASK_RECORDS) -> Iterator[Piece]:
    """The same offsets in pieces of at most so many, as equal as possible."""
    for piece in pieces:
        count = -(-(piece.end - piece.start) // records)
        for at in range(count):
            length = piece.end - piece.start
            yield Piece(
                piece.topic,
                piece.partition,
                piece.start + length * at // count,
                piece.start + length * (at + 1) // count,
            )
