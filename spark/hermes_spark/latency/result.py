"""The result of a latency job as plain values, for JSON and the terminal. Pure."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec
from msgspec import Struct


class Stage(StrEnum):
    """The measured stages, each from when the frontend had received the message."""

    FIRST_ATTEMPT = "first attempt"
    DELIVERED = "delivered"
    GIVEN_UP = "given up"


PERCENTS = (50, 90, 95, 99)
ACCURACY = 10_000
"""Accuracy of the percentiles: the rank is off by at most a ten-thousandth of all values."""

NOBODY_SAYS_WHEN_STORED = (
    "publish to store: no record says when its log had it; a node's metrics "
    "hermes_frontend_topic_ack_{all,leader}_broker_latency_seconds have it as a histogram"
)


class Latency(Struct, frozen=True):
    """The latencies of one stage in ms; null if none is known. `dc` is where the message is stored,
    null for all datacentres together, "several" for messages stored in more than one.

    Of `messages`, `known` have a latency; of the others it is unknown whether they still wait, were
    filtered out or given up. `below_zero` seem to arrive before they were published, because clocks
    differ.
    """

    topic: str
    subscription: str
    stage: str
    dc: str | None
    messages: int
    known: int
    below_zero: int
    p50_ms: int | None
    p90_ms: int | None
    p95_ms: int | None
    p99_ms: int | None
    max_ms: int | None


class Hedging(Struct, frozen=True):
    """The copies stored by hedging. `published_dc` is the publisher's datacentre, null for all.

    Of `messages`, `hedged` have a copy from a hedge. Of `rescued` that is the only copy; `doubled`
    have another one, too, at a cost of `surplus` copies.
    """

    topic: str
    published_dc: str | None
    messages: int
    copies: int
    hedged: int
    rescued: int
    doubled: int
    surplus: int

    @property
    def hedge_percent(self) -> float:
        """The percentage of messages that were hedged."""
        return 100 * self.hedged / self.messages if self.messages else 0.0

    @property
    def surplus_percent(self) -> float:
        """Surplus copies from hedging as a percentage of messages."""
        return 100 * self.surplus / self.messages if self.messages else 0.0


class Repeated(Struct, frozen=True):
    """How often a subscriber accepted a message again, by its journal. `unmatched` messages of the
    journal are in no log of the snapshot: of another topic, of a batch, newer, or expired.
    `unreadable` lines could not be parsed.
    """

    topic: str
    subscription: str
    messages: int
    repetitions: int
    unmatched: int
    unreadable: int


class Result(Struct, frozen=True):
    """The whole result except the hours, which are in the tables. `unknown` lists what cannot be
    known.
    """

    taken_at_ms: int
    latencies: list[Latency]
    hedging: list[Hedging]
    repeated: list[Repeated]
    unknown: list[str]
    accuracy: int = ACCURACY

    def save(self, path: Path) -> None:
        """Write it as JSON. Raises OSError."""
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1))


def not_known(
    topics: Sequence[str],
    journalled: Sequence[tuple[str, str]],
    subscribed: Sequence[tuple[str, str]],
) -> Iterator[str]:
    """Sentences about what cannot be known for these topics. `journalled` are the subscriptions
    with a journal, `subscribed` those that have ever settled something.
    """
    if topics:
        yield NOBODY_SAYS_WHEN_STORED
    for topic, name in subscribed:
        if (topic, name) not in journalled:
            yield (
                f"{topic}${name}: first attempt and delivered: no log says when; give its "
                f"subscriber's journal with --journal '{topic}${name}=FILE'"
            )
    if topics:
        yield "hedges that stored nothing: they leave no trace in a log"
