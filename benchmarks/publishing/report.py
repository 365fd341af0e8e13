"""A run's figures as a table."""

from collections.abc import Iterator
from typing import Any

_BUSY_PERCENT = 90
_KEY = ("log", "protocol", "message")
_HEAD = f"{'log':9}{'protocol':9}{'message':>9}"
_QUANTILES = f"{'p50 ms':>9}{'p99 ms':>9}{'p99.9 ms':>9}{'max ms':>9}"


def lines(results: dict[str, Any]) -> Iterator[str]:
    """All tables, line by line."""
    yield from _floors(results["floors"])
    if results["closed"]:
        yield ""
        yield "Closed loop: each connection sends when it was answered."
        yield (
            f"{_HEAD}{'conns':>6}{'msg/s':>9}{_QUANTILES}{'CPU ms/1000':>12}{'MiB':>7}"
            f"{'empty app':>11}{'ratio':>6}"
        )
        for row in results["closed"]:
            yield _closed(row, results["closed"])
    if results["open"]:
        yield ""
        yield (
            "Open loop: messages are due at the offered rate, latency counts from then "
            f"({results['options']['spacing']} arrivals)."
        )
        yield f"{_HEAD}{'offered/s':>10}{'msg/s':>9}{_QUANTILES}{'CPU ms/1000':>12}{'late ms':>9}"
        for row in results["open"]:
            yield _open(row)
    for row in results["max"]:
        yield (
            f"{_name(row)}: up to {row['rate_per_s']}/s with a p99 of at most {row['p99_ms']} ms "
            "and every message acknowledged"
        )
    for row in results["starts"]:
        yield (
            f"{row['log']}: start to the first answered publish "
            f"{row['seconds']} s, status {row['status']}"
        )
    for row in results["skipped"]:
        yield f"{_name(row)}: skipped, answered {row['answers']}"
    yield ""
    yield "CPU is the server process's, ms for 1,000 messages (µs for one); not Kafka's own."
    yield "late: how long after its time this process sent a message that could go at once (p99)."
    yield f"*: this process used {_BUSY_PERCENT} % of a core or more: the load may be the limit."


def progress(row: dict[str, Any]) -> str:
    """A short line for the progress of a run."""
    rate = f"{row['offered_per_s']}/s offered" if "offered_per_s" in row else "closed"
    conns = f", {row['connections']} connections" if "offered_per_s" not in row else ""
    return (
        f"{_name(row)}, {rate}{conns}: {row['messages_per_s']}/s, p50 {row['p50_ms']}, "
        f"p99 {row['p99_ms']} ms{_troubles(row)}"
    )


def _name(row: dict[str, Any]) -> str:
    return " ".join(str(row[key]) for key in _KEY)


def _floors(floors: list[dict[str, Any]]) -> Iterator[str]:
    for row in floors:
        one = row["one_in_flight"]
        batched = f"; batched {row['batched_per_s']}/s" if row["batched_per_s"] else ""
        yield (
            f"{row['floor']}, {row['message']}: one in flight {one['messages_per_s']}/s, "
            f"p50 {one['p50_ms']} ms, p99 {one['p99_ms']} ms, p99.9 {one['p999_ms']} ms{batched}"
        )


def _closed(row: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    same = ("protocol", "message", "connections")
    empty = [
        other["messages_per_s"]
        for other in rows
        if other["log"] == "empty" and all(other[key] == row[key] for key in same)
    ]
    beside = ""
    if empty and empty[0] and row["log"] != "empty":
        beside = f"{empty[0]:9}/s{row['messages_per_s'] / empty[0]:6.2f}"
    if "delivered_per_s" in row:
        beside += f"  {row['delivered_per_s']}/s delivered"
    return (
        f"{_head(row)}{row['connections']:6}{row['messages_per_s']:9}{_quantiles(row)}"
        f"{_or_dash(row['cpu_ms_per_1000']):>12}{row['memory_mib']:7}{beside}{_troubles(row)}"
    )


def _open(row: dict[str, Any]) -> str:
    return (
        f"{_head(row)}{row['offered_per_s']:10}{row['messages_per_s']:9}{_quantiles(row)}"
        f"{_or_dash(row['cpu_ms_per_1000']):>12}{_or_dash(row['late_p99_ms']):>9}{_troubles(row)}"
    )


def _head(row: dict[str, Any]) -> str:
    return f"{row['log']:9}{row['protocol']:9}{row['message']:>9}"


def _quantiles(row: dict[str, Any]) -> str:
    return "".join(
        f"{_or_dash(row[name]):>9}" for name in ("p50_ms", "p99_ms", "p999_ms", "max_ms")
    )


def _or_dash(value: float | None) -> str:
    return "-" if value is None else str(value)


def _troubles(row: dict[str, Any]) -> str:
    found = [f"{count} x {what}" for what, count in row["errors"].items()]
    if row["unanswered"]:
        found.append(f"{row['unanswered']} unanswered")
    busy = " *" if row["client_cpu_percent"] >= _BUSY_PERCENT else ""
    return (f"  ({', '.join(found)})" if found else "") + busy
