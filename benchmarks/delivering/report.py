"""A run's figures as tables."""

from collections.abc import Iterator
from typing import Any

_QUANTILES = ("p50_ms", "p99_ms", "p999_ms", "max_ms")
_HEAD = f"{'p50 ms':>9}{'p99 ms':>9}{'p99.9 ms':>10}{'max ms':>9}"


def lines(results: dict[str, Any]) -> Iterator[str]:
    """All tables, line by line."""
    yield from _rates(results["path"], results["sustained"])
    yield from _latencies(results["latency"])
    yield from _starts(results["start"])
    yield from _isolation(results["isolation"])
    for row in results["crash"]:
        first_s = row["first_after_start_s"]
        first = "none came" if first_s is None else f"the first one came {first_s} s"
        yield (
            f"{row['log']}: killed at {row['rate_per_s']:g}/s after {row['seconds']:g} s with "
            f"{row['failing']} messages failing: of {row['acknowledged']} acknowledged "
            f"{row['lost']} lost, {row['twice']} delivered twice ({row['twice_ms']} ms of "
            f"traffic); {first} after the next start, and {row['late']} others had not come when "
            "the load ended"
        )


def _rates(path: list[dict[str, Any]], sustained: list[dict[str, Any]]) -> Iterator[str]:
    if not path and not sustained:
        return
    yield "Deliveries of one subscription from a filled log; CPU is the delivering process's."
    yield (
        f"{'':24}{'messages':>9}{'each/s':>9}{'CPU µs':>8}{'per core':>10}{'MiB':>7}"
        f"{'of the bare sender':>20}"
    )
    bare = next((row for row in path if row["what"] == "bare sender"), None)
    for row in (*path, *sustained):
        beside = ""
        if bare is not None and row is not bare:
            slower = row["deliveries_per_s"] / bare["deliveries_per_s"]
            beside = f"{slower:9.2f} x rate"
        per_core = round(1e6 / row["cpu_us_each"]) if row["cpu_us_each"] else "-"
        more = row.get("more_than_once", 0)
        yield (
            f"{row['what'] + ', ' + row['log']:24}{row['deliveries']:9}"
            f"{row['deliveries_per_s']:9}{row['cpu_us_each']:8}{per_core:>10}"
            f"{row.get('memory_mib', '-'):>7}{beside:>20}"
            + (f"  ({more} more than once)" if more else "")
        )


def _latencies(rows: list[dict[str, Any]]) -> Iterator[str]:
    if not rows:
        return
    yield ""
    yield "Open loop: from when a message was due until it was delivered, or acknowledged."
    yield f"{'log':10}{'':10}{'rate/s':>7}{_HEAD}{'late ms':>9}"
    for row in rows:
        missing = f"  ({row['missing']} acknowledged, not delivered)" if row["missing"] else ""
        late = row["published"]["late_p99_ms"]
        yield f"{row['log']:10}{'delivered':10}{row['rate_per_s']:7g}{_quantiles(row)}{missing}"
        yield (
            f"{'':10}{'201':10}{'':7}{_quantiles(row['published'])}"
            f"{'-' if late is None else late:>9}{_errors(row['published'])}"
        )


def _starts(rows: list[dict[str, Any]]) -> Iterator[str]:
    if not rows:
        return
    yield ""
    yield "From asking for it until the first message is delivered."
    yield f"{'log':10}{'subscription':14}{'p50 ms':>9}{'max ms':>9}"
    for row in rows:
        missed = f"  ({row['missed']} never delivered)" if row["missed"] else ""
        yield f"{row['log']:10}{row['what']:14}{row['p50_ms']:9}{row['max_ms']:9}{missed}"


def _isolation(rows: list[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        yield ""
        yield (
            f"{row['log']}: {row['healthy']} subscriptions, and in every other round one with a "
            "dead endpoint and one with a slow one."
        )
        yield f"{'round':10}{'deliveries':>11}{_HEAD}{'node CPU %':>12}"
        for each in row["rounds"]:
            name = "without" if each["is_calm"] else "with"
            yield f"{name:10}{each['deliveries']:11}{_quantiles(each)}{each['cpu_percent']:12}"
        yield (
            f"p99 of the others moves by {row['moves_percent']} %: from {row['calm_p99_ms']} to "
            f"{row['sick_p99_ms']} ms (medians); without, it spreads by "
            f"{row['calm_spread_percent']} % by itself"
        )


def _quantiles(row: dict[str, Any]) -> str:
    return "".join(
        f"{'-' if row[name] is None else row[name]:>{10 if name == 'p999_ms' else 9}}"
        for name in _QUANTILES
    )


def _errors(row: dict[str, Any]) -> str:
    found = [f"{count} x {what}" for what, count in row["errors"].items()]
    if row["unanswered"]:
        found.append(f"{row['unanswered']} unanswered")
    return f"  ({', '.join(found)})" if found else ""
