"""The tables of a run, in Markdown."""

from collections.abc import Iterator
from typing import Any


def lines(results: dict[str, Any]) -> Iterator[str]:
    """The tables of all measured parts."""
    machine = results["machine"]
    yield (
        f"{machine['cores']} cores, {machine['processor']}, Python {machine['python']}, "
        f"{results['seeds']} seeds from {results['first_seed']}"
    )
    for part, title in (
        (_even, "Evenness, from clusters that were balanced by count"),
        (_steps, "Time of a round"),
        (_joins, "A node joins"),
        (_losses, "A node is lost"),
        (_days, "A day under noise"),
        (_throttled, "One node at half its speed, or with half a core"),
    ):
        rows = results[part.__name__.strip("_")]
        if rows:
            yield from ("", f"## {title}", "")
            yield from part(rows)


def _table(heads: list[str], rows: list[list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _even(rows: list[dict[str, Any]]) -> Iterator[str]:
    heads = ["nodes × subscriptions", "algorithm", "seeds", "max/ideal mean", "worst", "max/mean"]
    yield from _table(
        [*heads, "tasks moved", "CPU ms"],
        [
            [
                row["shape"],
                row["algorithm"],
                str(row["seeds"]),
                f"{row['over_ideal']:.3f}",
                f"{row['over_ideal_worst']:.4f}",
                f"{row['over_mean']:.3f}",
                f"{row['moves']:.0f} of {row['tasks']}",
                f"{row['ms']:.0f}",
            ]
            for row in rows
        ],
    )


def _steps(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield from _table(
        ["nodes × subscriptions", "from", "CPU ms of a round, worst", "of its longest step"],
        [
            [row["shape"], row["from"], f"{row['total_ms']:.0f}", f"{row['longest_ms']:.1f}"]
            for row in rows
        ],
    )


def _joins(rows: list[dict[str, Any]]) -> Iterator[str]:
    heads = ["nodes × subscriptions", "algorithm", "moves", "lower bound", "× bound, worst"]
    yield from _table(
        [*heads, "max/ideal after, worst", "newcomer's load, least"],
        [
            [
                row["shape"],
                row["algorithm"],
                f"{row['moves']:.1f}",
                f"{row['least']:.1f}",
                f"{row['times_least_worst']:.2f}",
                f"{row['over_ideal_worst']:.3f}",
                f"{row['newcomer_least']:.2f}",
            ]
            for row in rows
        ],
    )


def _losses(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield from _table(
        ["nodes × subscriptions", "its tasks", "others that move", "max/target after, worst"],
        [
            [row["shape"], f"{row['forced']:.0f}", f"{row['moves']:.1f}", f"{row['worst']:.3f}"]
            for row in rows
        ],
    )


def _days(rows: list[dict[str, Any]]) -> Iterator[str]:
    heads = ["nodes × subscriptions", "loads swing by", "algorithm", "moves an hour"]
    yield from _table(
        [*heads, "in the first", "in the second half", "max/ideal mean", "p99"],
        [
            [
                row["shape"],
                f"{100 * row['swing']:.0f} %",
                row["algorithm"],
                f"{row['moves_an_hour']:.1f}",
                str(row["moves_first_hour"]),
                f"{row['moves_last_hours']:.1f}",
                f"{row['over_ideal_mean']:.3f}",
                f"{row['over_ideal_p99']:.3f}",
            ]
            for row in rows
        ],
    )


def _throttled(rows: list[dict[str, Any]]) -> Iterator[str]:
    heads = ["nodes × subscriptions", "why", "minutes until all are within 10 %", "busiest/mean"]
    yield from _table(
        [*heads, "moves", "of them in the second half"],
        [
            [
                row["shape"],
                row["why"],
                f"{row['settled_min']:.1f}",
                f"{row['busiest']:.3f}",
                str(row["moves"]),
                f"{row['moves_second_half']} of {row['minutes'] / 60:g} h",
            ]
            for row in rows
        ],
    )
