"""The result of a reconciliation as plain values, for JSON, report and exit code. Pure."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes_spark.reconcile.flags import (
    UNKNOWN_FATES,
    Fact,
    Fate,
    causes_of,
    fate_of,
    places_of,
)
from hermes_spark.reconcile.settled import SubscriptionSettled


class Verdict(StrEnum):
    """Whether anything is lost."""

    CLEAN = "clean"
    LOST = "lost"
    UNKNOWN = "unknown"


EXIT_CODES = {Verdict.CLEAN: 0, Verdict.LOST: 1, Verdict.UNKNOWN: 3}
"""Exit codes of the command, for cron and the like; 2 is a wrong command line, as everywhere."""


class Combination(Struct, frozen=True):
    """How many messages of a topic have exactly these flags and this number of copies."""

    topic: str
    flags: int
    copies: int
    messages: int


class SubscriptionCount(Struct, frozen=True):
    """The counts of one subscription in one datacentre's log."""

    topic: str
    subscription: str
    dc: str
    unsettled: int = 0
    oldest_ms: int | None = None
    dead_letters: int = 0
    settled_without_store: int = 0
    """Dead letters of offsets that the log does not hold and never held."""


class TopicResult(Struct, frozen=True):
    """One topic. Counts are of messages by their exact id, except `records`. `stored_in` and `ways`
    count a message once for each route into each datacentre's log.

    `fates` counts messages by `Fate`, without stored ones that are in no list. `causes` counts the
    messages with further copies, by cause; `surplus` counts those copies.
    """

    topic: str
    messages: int = 0
    records: int = 0
    acknowledged: int = 0
    fates: dict[str, int] = {}
    stored_in: dict[str, int] = {}
    ways: dict[str, int] = {}
    duplicated: int = 0
    surplus: int = 0
    causes: dict[str, int] = {}
    lost_ids: list[str] = []
    """The first lost ids, in order."""


class SubscriptionInDc(Struct, frozen=True):
    """One subscription in one datacentre's log. `records` is how many of its topic's records the
    log holds; `unknown` of them are in partitions without a commit.
    """

    dc: str
    records: int
    unsettled: int
    unknown: int
    oldest_unsettled_ms: int | None
    dead_letters: int
    settled_without_store: int


class SubscriptionResult(Struct, frozen=True):
    """One subscription in all datacentres."""

    topic: str
    name: str
    retransmissions: int
    datacentres: list[SubscriptionInDc]

    @property
    def unsettled(self) -> int:
        """The number of stored records that it has not settled."""
        return sum(each.unsettled for each in self.datacentres)

    @property
    def dead_letters(self) -> int:
        """The number of its open dead letters."""
        return sum(each.dead_letters for each in self.datacentres)

    @property
    def unknown(self) -> int:
        """The number of stored records whose state is unknown."""
        return sum(each.unknown for each in self.datacentres)

    @property
    def settled_without_store(self) -> int:
        """The number of offsets that it has settled but no log holds, which should be
        impossible.
        """
        return sum(each.settled_without_store for each in self.datacentres)

    @property
    def oldest_unsettled_ms(self) -> int | None:
        """When its oldest unsettled record was published."""
        known = [
            each.oldest_unsettled_ms
            for each in self.datacentres
            if each.oldest_unsettled_ms is not None
        ]
        return min(known, default=None)


class Result(Struct, frozen=True):
    """The whole result. `has_lists`: lists of acknowledged messages were given; without any, it
    cannot be known that nothing is lost.
    """

    taken_at_ms: int
    datacentres: list[str]
    has_lists: bool
    topics: list[TopicResult]
    subscriptions: list[SubscriptionResult]

    def count(self, *fates: Fate) -> int:
        """The number of messages of all topics with one of these fates."""
        return sum(topic.fates.get(fate, 0) for topic in self.topics for fate in fates)

    @property
    def unlisted(self) -> list[str]:
        """The topics with messages but without a list of acknowledged ones."""
        return [each.topic for each in self.topics if each.messages and not each.acknowledged]

    @property
    def settled_without_store(self) -> int:
        """Over all subscriptions. Above 0, a log was truncated."""
        return sum(each.settled_without_store for each in self.subscriptions)

    @property
    def verdict(self) -> Verdict:
        """LOST if anything certainly is; CLEAN only if every topic could be checked."""
        if self.count(Fate.LOST) or self.settled_without_store:
            return Verdict.LOST
        if self.count(*UNKNOWN_FATES) or self.unlisted or not self.has_lists:
            return Verdict.UNKNOWN
        return Verdict.CLEAN

    def reasons(self) -> list[str]:
        """The reasons for the verdict, one sentence each."""
        said = [
            (self.count(Fate.LOST), "acknowledged and in no datacentre's log: lost"),
            (
                self.settled_without_store,
                "settled by a subscription but in no log: the log has lost its end",
            ),
            (self.count(Fate.PENDING), "acknowledged within the last minute and not stored yet"),
            (
                self.count(Fate.KEPT),
                "in a node's spool (202) and in no log yet, or lost from the spool",
            ),
            (
                self.count(Fate.EXPIRED),
                "no longer in a log, or never stored: older than the retention",
            ),
        ]
        found = [
            f"{_counted(count, 'message')} {'is' if count == 1 else 'are'} {text}"
            for count, text in said
            if count
        ]
        if not self.has_lists:
            found.append(
                "No list of acknowledged messages was given, so messages that are stored nowhere "
                "cannot be found; give --acknowledged"
            )
        elif self.unlisted:
            names = ", ".join(self.unlisted[:5]) + (" …" if len(self.unlisted) > 5 else "")
            found.append(
                f"Of {_counted(len(self.unlisted), 'topic')} no list has the acknowledged "
                "messages: "
                f"{names}"
            )
        if not found:
            acknowledged = sum(each.acknowledged for each in self.topics)
            found.append(
                f"All acknowledged messages are stored: {_counted(acknowledged, 'message')}"
            )
        return found

    def summary(self) -> list[str]:
        """A summary in a few lines for a terminal."""
        messages = sum(each.messages for each in self.topics)
        records = sum(each.records for each in self.topics)
        duplicated = sum(each.duplicated for each in self.topics)
        lines = [f"{self.verdict.upper()}: {each}" for each in self.reasons()]
        lines.append(
            f"{_counted(messages, 'message')} in {_counted(len(self.topics), 'topic')}, "
            f"{_counted(records, 'record')} in {_counted(len(self.datacentres), 'datacentre')}, "
            f"{_counted(duplicated, 'message')} in more than one copy{_causes(self.causes)}"
        )
        late = [each for each in self.subscriptions if each.unsettled]
        unsettled = sum(each.unsettled for each in late)
        behind = (
            f"{len(late):,} of them with {_counted(unsettled, 'record')} not settled"
            if late
            else "none with anything unsettled"
        )
        letters = sum(each.dead_letters for each in self.subscriptions)
        lines.append(
            f"{_counted(len(self.subscriptions), 'subscription')}, {behind}, "
            + _counted(letters, "open dead letter")
        )
        return lines

    @property
    def causes(self) -> dict[str, int]:
        """How many messages have further copies by each cause, over all topics."""
        return _summed(
            (cause, count) for each in self.topics for cause, count in each.causes.items()
        )

    def save(self, path: Path) -> None:
        """Write it as JSON, with verdict and reasons. Raises OSError."""
        fields = {"verdict": self.verdict, "reasons": self.reasons(), **msgspec.to_builtins(self)}
        path.write_bytes(msgspec.json.format(msgspec.json.encode(fields), indent=1))


def topic_results(
    combinations: Iterable[Combination], dcs: Sequence[str], lost_ids: dict[str, list[str]]
) -> list[TopicResult]:
    """The topics, by name, from the counts of messages by flags."""
    by_topic: dict[str, list[Combination]] = {}
    for each in combinations:
        by_topic.setdefault(each.topic, []).append(each)
    return [
        _topic(topic, by_topic[topic], dcs, lost_ids.get(topic, [])) for topic in sorted(by_topic)
    ]


def _topic(
    topic: str, combinations: list[Combination], dcs: Sequence[str], lost_ids: list[str]
) -> TopicResult:
    listed = Fact.ACKNOWLEDGED | Fact.KEPT
    stored = [each for each in combinations if each.copies]
    doubled = [each for each in stored if each.copies > 1]
    fates = (
        (fate_of(each.flags).value, each.messages)
        for each in combinations
        if each.flags & listed or not each.copies
    )
    places = [(place, each.messages) for each in stored for place in places_of(each.flags)]
    return TopicResult(
        topic,
        messages=sum(each.messages for each in stored),
        records=sum(each.messages * each.copies for each in stored),
        acknowledged=sum(each.messages for each in combinations if each.flags & listed),
        fates=_summed(fates),
        stored_in=_summed((dcs[dc], count) for (dc, _), count in places),
        ways=_summed((way, count) for (_, way), count in places),
        duplicated=sum(each.messages for each in doubled),
        surplus=sum(each.messages * (each.copies - 1) for each in doubled),
        causes=_summed(
            (cause, each.messages)
            for each in doubled
            for cause in causes_of(each.flags, each.copies)
        ),
        lost_ids=lost_ids,
    )


def subscription_results(
    subscriptions: Iterable[SubscriptionSettled],
    counts: Iterable[SubscriptionCount],
) -> list[SubscriptionResult]:
    """The subscriptions, from their commits and counts. One that has only dead letters and no
    commit anywhere is left out.
    """
    counted = {(each.topic, each.subscription, each.dc): each for each in counts}
    results = []
    for each in subscriptions:
        by_dc = []
        for dc in dict.fromkeys(part.dc for part in each.partitions):
            parts = [part for part in each.partitions if part.dc == dc]
            count = counted.get(
                (each.topic, each.name, dc), SubscriptionCount(each.topic, each.name, dc)
            )
            by_dc.append(
                SubscriptionInDc(
                    dc,
                    records=sum(part.range.end - part.range.start for part in parts),
                    unsettled=count.unsettled,
                    unknown=sum(
                        part.range.end - part.range.start for part in parts if part.position is None
                    ),
                    oldest_unsettled_ms=count.oldest_ms,
                    dead_letters=count.dead_letters,
                    settled_without_store=count.settled_without_store
                    + sum(part.beyond for part in parts),
                )
            )
        results.append(SubscriptionResult(each.topic, each.name, each.retransmissions, by_dc))
    return results


def _summed(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for name, count in pairs:
        totals[name] = totals.get(name, 0) + count
    return dict(sorted(totals.items()))


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _causes(causes: dict[str, int]) -> str:
    if not causes:
        return ""
    return " (" + ", ".join(f"{cause} {count:,}" for cause, count in causes.items()) + ")"
