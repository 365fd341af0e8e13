"""The tables at the end: what became of the messages, and their latencies."""

from rich.console import Console
from rich.table import Table

from examples.flights.deliveries import DeliveryFile
from hermes_actors.cli.publishing.publisher import PublishResult, percentile


def show(
    console: Console,
    outcomes: list[PublishResult],
    seconds: float,
    rate_per_s: float,
    stored: dict[str, int | None],
    files: list[DeliveryFile],
    later: int,
) -> None:
    """Print two tables: the messages' fates, and their latencies at that rate. `later` messages are
    not published yet.
    """
    accepted = [each for each in outcomes if each.is_accepted]
    sent_ms = {each.message_id: each.sent_ms for each in accepted}
    rest = f"{later:,} more are published while a node is lost" if later else None
    counts = Table(title="Messages", title_justify="left", caption=rest, caption_justify="left")
    for heading in ("", "messages", "retried", "duplicates"):
        counts.add_column(heading, justify="right" if heading else "left")
    publish_retries = sum(each.attempts > 1 for each in outcomes)
    counts.add_row("published", f"{len(accepted):,}", f"{publish_retries:,}", "")
    for dc, count in stored.items():
        counts.add_row(f"stored in {dc}", "not readable" if count is None else f"{count:,}", "", "")
    for each in files:
        counts.add_row(
            f"delivered to {each.name}",
            f"{each.delivered:,}",
            f"{each.retried:,}",
            f"{each.duplicates:,}",
        )
    console.print(counts)

    pace = f"at {rate_per_s:g} rows a second" if rate_per_s else "as fast as rows were answered"
    times = Table(title=f"Milliseconds, {pace}", title_justify="left")
    for heading in ("", "p50", "p99", "max", "messages/s"):
        times.add_column(heading, justify="right" if heading else "left")
    latencies = sorted(each.latency_ms for each in accepted)
    times.add_row("publish", *points(latencies), f"{len(accepted) / max(seconds, 1e-9):,.0f}")
    for each in files:
        received = sorted(each.first_accepted_ms.values())
        first_ms = min(sent_ms.values(), default=0)
        span_s = max(((received[-1] if received else 0) - first_ms) / 1_000, 1e-3)
        times.add_row(
            f"publish to {each.name}",
            *points(each.latencies_ms(sent_ms)),
            f"{each.delivered / span_s:,.0f}",
        )
    console.print(times)


def points(ascending: list[float]) -> list[str]:
    """p50, p99 and max as text."""
    return [f"{percentile(ascending, percent):,.1f}" for percent in (50, 99, 100)]
