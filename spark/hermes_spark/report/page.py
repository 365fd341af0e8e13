"""The report of a reconciliation: one HTML file without scripts, links or external resources."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hermes_spark.reconcile.flags import UNKNOWN_FATES, Fate
from hermes_spark.reconcile.result import Result, SubscriptionResult, TopicResult, Verdict
from hermes_spark.report.plots import stacked_bars

BARS_MAX = 15
"""Maximum number of rows in a plot, the most important ones; the tables have all."""

_HEADLINES = {
    Verdict.CLEAN: "Nothing is lost",
    Verdict.LOST: "Something is lost",
    Verdict.UNKNOWN: "It cannot be known whether something is lost",
}


def page(result: Result) -> str:
    """The page. Equal results give equal pages; names are always escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("hermes_spark", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"count": _count, "time": _time}
    text: str = environment.get_template("report.html.j2").render(_fields(result))
    return text


def write_page(result: Result, path: Path) -> None:
    """Write the page. Raises OSError."""
    path.write_text(page(result), encoding="utf-8")


def _fields(result: Result) -> dict[str, Any]:
    late = sorted(
        (each for each in result.subscriptions if each.unsettled),
        key=lambda each: (each.oldest_unsettled_ms or 0, each.topic, each.name),
    )
    doubled = sorted(
        (each for each in result.topics if each.duplicated),
        key=lambda each: (-each.duplicated, each.topic),
    )
    most_unsettled = sorted(late, key=lambda each: (-each.unsettled, each.topic, each.name))
    return {
        "verdict": result.verdict.value,
        "headline": _HEADLINES[result.verdict],
        "reasons": result.reasons(),
        "result": result,
        "tiles": _tiles(result, late),
        "lost": [each for each in result.topics if each.lost_ids],
        "doubled": doubled,
        "duplicates_plot": stacked_bars(
            [(each.topic, each.causes) for each in doubled[:BARS_MAX]],
            "messages in more than one copy, by cause",
        ),
        "late": [(each, _age(result.taken_at_ms, each.oldest_unsettled_ms)) for each in late],
        "late_plot": stacked_bars(
            [(_name(each), _by_dc(each)) for each in most_unsettled[:BARS_MAX]],
            "stored records that are not settled, by datacentre",
        ),
        "unknown_of": _unknown_of,
        "lost_of": _lost_of,
        "beyond_max": BARS_MAX,
    }


def _tiles(result: Result, late: list[SubscriptionResult]) -> list[tuple[str, int, str]]:
    """Name, number and CSS class."""
    lost = result.count(Fate.LOST) + result.settled_without_store
    unknown = result.count(*UNKNOWN_FATES)
    doubled = sum(each.duplicated for each in result.topics)
    letters = sum(each.dead_letters for each in result.subscriptions)
    return [
        ("messages", sum(each.messages for each in result.topics), ""),
        ("acknowledged, by the lists", sum(each.acknowledged for each in result.topics), ""),
        ("lost", lost, "bad" if lost else "good"),
        ("unknown", unknown, "odd" if unknown else ""),
        ("in more than one copy", doubled, "odd" if doubled else ""),
        ("subscriptions late", len(late), "odd" if late else ""),
        ("open dead letters", letters, "odd" if letters else ""),
    ]


def _by_dc(each: SubscriptionResult) -> dict[str, int]:
    return {in_dc.dc: in_dc.unsettled for in_dc in each.datacentres}


def _name(each: SubscriptionResult) -> str:
    return f"{each.topic}${each.name}"


def _unknown_of(topic: TopicResult) -> int:
    return sum(topic.fates.get(fate, 0) for fate in UNKNOWN_FATES)


def _lost_of(topic: TopicResult) -> int:
    return topic.fates.get(Fate.LOST, 0)


def _count(number: int) -> str:
    return f"{number:,}"


def _time(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _age(now_ms: int, then_ms: int | None) -> str:
    """How long ago, in the largest unit that gives at least two."""
    if then_ms is None:
        return ""
    seconds = max(0, now_ms - then_ms) / 1000
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.1f} s"
