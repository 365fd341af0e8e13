"""Collects a node's next status record from its parts, a few entries at a time. Pure.

It lives as long as the process, so that sequence, rates and counters go on when the reporter is
restarted.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from hermes_actors.status.dependencies import Dependency, notices, reasons
from hermes_actors.status.lag import UNKNOWN, Ends
from hermes_actors.status.rates import Rates
from hermes_actors.status.record import (
    REASONS_MAX,
    Flow,
    LastUndelivered,
    NodeHeader,
    Page,
    Published,
    SubscriptionStatus,
    TopicStatus,
    clip,
)
from hermes_actors.status.sums import judged

ENTRIES_MAX = 1_000
"""The most that one record holds; a node with more needs several seconds for a round."""


class NodeIdentity(Struct, frozen=True):
    """The process that reports. `boot_id` is new at each start of it."""

    dc: str
    node: str
    boot_id: str
    roles: tuple[str, ...]
    version: str
    started_at_ms: int


class SubscriptionFigures(Struct, frozen=True):
    """The figures of a subscription on the node that owns it. `counts` are since the node's start.

    `why`: what keeps it from being delivered, "" when nothing does. `reached`: for each partition
    of `log_topic` that is consumed here the offset whose distance from the end is what is not
    settled: one message that waits counts as one, whatever was delivered after it.
    """

    why: str
    counts: Flow = Flow()
    inflight: int = 0
    waiting_retries: int = 0
    last_failure: str = ""
    last_failure_at_ms: int = 0
    log_topic: str = ""
    reached: Mapping[int, int] = {}
    last_success_at_ms: int = 0
    level: str = ""
    """The trust in the endpoint; "" where it is not consumed."""
    rate_now: float = 0.0
    """The most that may be sent to it, in messages a second."""
    held_back: str = ""
    """The reason why it is not sent more, though it is delivered; "" when there is none."""
    oldest_age_ms: int = 0
    """How long ago the oldest message that is read and not settled was stored."""
    last_undelivered: LastUndelivered | None = None
    last_attempts: int = 0
    """How many attempts the message has had whose attempt failed last."""
    latency_ms: tuple[float, float] | None = None
    """How long half of the pushes of the last minute took at most, and 99 % of them."""


def _clipped(last: LastUndelivered | None) -> LastUndelivered | None:
    return None if last is None else msgspec.structs.replace(last, reason=clip(last.reason))


def _few(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(clip(each) for each in texts if each)[:REASONS_MAX]


def _none() -> Sequence[str]:
    return ()


def _nothing(_name: str) -> None:
    return None


def _not_known(_name: str) -> int:
    return UNKNOWN


class Sources(Struct, frozen=True, kw_only=True):
    """Where the figures come from. None of these waits, and none is slow.

    `dependencies`: what the node works with, and how it fares. `topics` names what has been
    published to, `subscriptions` what is the node's own; `published`, `publish_latency` (of the
    last minute: p50 and p99 in ms) and `consumed` give the figures, None for what is gone
    meanwhile.
    """

    dependencies: Callable[[], Sequence[Dependency]] = tuple
    topics: Callable[[], Iterable[str]] = _none
    published: Callable[[str], Published | None] = _nothing
    publish_latency: Callable[[str], tuple[float, float] | None] = _nothing
    subscriptions: Callable[[], Iterable[str]] = _none
    consumed: Callable[[str], SubscriptionFigures | None] = _nothing
    open_letters: Callable[[str], int] = _not_known
    """How many dead letters of a subscription are open; -1 where that is another node's to say."""
    spooled: Callable[[], int] = int
    """How many messages wait in the spool."""
    elsewhere: Callable[[], int] = int
    """How many messages were sent to other datacentres since the node's start."""


class Collector:
    """Makes one node's records: `begin`, `add_some` until it says False, `encode`, then `took`."""

    def __init__(
        self, identity: NodeIdentity, sources: Sources, *, entries_max: int = ENTRIES_MAX
    ) -> None:
        self.identity = identity
        self.ends = Ends()
        self.missed = 0
        self.newest: dict[str, SubscriptionStatus] = {}
        """The last status of each subscription that is the node's own."""
        self._sources = sources
        self._entries_max = entries_max
        self._sequence = 0
        self._round = 0
        # This round's entries: topics first, then subscriptions; `_at` is the next one.
        self._topics: list[str] = []
        self._subscriptions: list[str] = []
        self._at = 0
        self._begun_at = 0
        self._left_out = 0
        self._published = Rates()
        self._consumed = Rates()
        self._elsewhere = Rates()
        self._stopped: set[str] = set()
        self._failing: set[str] = set()
        self._log_topics: set[str] = set()
        # When this round and the one before began; None while there is none.
        self._began_s: float | None = None
        self._began_before_s: float | None = None
        self._page: Page | None = None

    def begin(self, now_ms: int, now_s: float, bytes_max: int) -> None:
        """Begin a record; it goes on where the last one ended."""
        if self._at >= self._size:
            self._begin_round(now_s)
        self._begun_at = self._at
        self._sequence += 1
        identity, found = self.identity, self._sources.dependencies()
        (elsewhere_rate,) = self._elsewhere.update("", [self._sources.elsewhere()], now_s)
        header = NodeHeader(
            node=identity.node,
            dc=identity.dc,
            boot_id=identity.boot_id,
            sequence=self._sequence,
            roles=identity.roles,
            version=identity.version,
            started_at_ms=identity.started_at_ms,
            written_at_ms=now_ms,
            reasons=_few(reasons(found)),
            notices=_few(notices(found)),
            missed=self.missed,
            round=self._round,
            topics=len(self._topics),
            subscriptions=len(self._subscriptions),
            spooled=self._sources.spooled(),
            elsewhere_rate=elsewhere_rate,
        )
        # What `encode` fills in makes it longer by a few bytes for each number.
        self._page = Page(header, bytes_max - 64)

    def add_some(self, now_s: float, entries_max: int) -> bool:
        """Add up to that many entries; False when the record is full or the round is done."""
        page = self._page
        assert page is not None, "begin comes first"
        for _ in range(entries_max):
            if self._at >= self._size or page.entries >= self._entries_max:
                return False
            entry = self._entry(self._at, now_s)
            if entry is not None and not page.add(entry):
                if page.entries:
                    return False
                # It does not fit into a record of its own.
                self._left_out += 1
            self._at += 1
        return True

    def encode(self, *, loop_lag_ms: float = 0.0, is_leaving: bool = False) -> bytes:
        """Give the bytes of the record, as far as it is filled."""
        assert self._page is not None, "begin comes first"
        return self._page.encode(
            loop_lag_ms=round(loop_lag_ms, 1),
            is_leaving=is_leaving,
            left_out=self._left_out,
            stopped_subscriptions=len(self._stopped),
            failing_subscriptions=len(self._failing),
            published_rate=self._published.total,
            delivered_rate=self._consumed.total,
        )

    def took(self, *, is_stored: bool) -> None:
        """Record whether the log took the record; if not, the next one begins with the same
        entries.
        """
        if not is_stored:
            self.missed += 1
            self._at = self._begun_at

    @property
    def _size(self) -> int:
        return len(self._topics) + len(self._subscriptions)

    def _begin_round(self, now_s: float) -> None:
        self._round += 1
        self._began_before_s, self._began_s = self._began_s, now_s
        self._at = 0
        self._left_out = 0
        self._topics = sorted(self._sources.topics())
        self._subscriptions = sorted(self._sources.subscriptions())
        self._published.keep_only(set(self._topics))
        names = set(self._subscriptions)
        self._consumed.keep_only(names)
        self._stopped &= names
        for gone in self.newest.keys() - names:
            del self.newest[gone]
        self._failing &= names
        self.ends.follow(sorted(self._log_topics))
        self._log_topics = set()

    def _entry(self, at: int, now_s: float) -> TopicStatus | SubscriptionStatus | None:
        if at < len(self._topics):
            return self._topic(self._topics[at], now_s)
        return self._subscription(self._subscriptions[at - len(self._topics)], now_s)

    def _topic(self, name: str, now_s: float) -> TopicStatus | None:
        counts = self._sources.published(name)
        if counts is None:
            return None
        # A topic is named once something was published: before this round nothing had been.
        rates = self._published.update(
            name, msgspec.structs.astuple(counts), now_s, self._began_before_s
        )
        latency_ms = self._sources.publish_latency(name) or (-1.0, -1.0)
        return TopicStatus(name, counts, Published(*rates), *latency_ms)

    def _subscription(self, name: str, now_s: float) -> SubscriptionStatus | None:
        figures = self._sources.consumed(name)
        if figures is None:
            self.newest.pop(name, None)
            self._stopped.discard(name)
            self._failing.discard(name)
            return None
        if figures.log_topic:
            self._log_topics.add(figures.log_topic)
        rates = self._consumed.update(name, msgspec.structs.astuple(figures.counts), now_s)
        entry = SubscriptionStatus(
            name,
            clip(figures.why),
            figures.counts,
            Flow(*rates),
            self.ends.lag(figures.log_topic, figures.reached, now_s),
            figures.inflight,
            figures.waiting_retries,
            clip(figures.last_failure),
            figures.last_failure_at_ms,
            figures.last_success_at_ms,
            figures.level,
            round(1_000 * figures.rate_now),
            clip(figures.held_back),
            figures.oldest_age_ms,
            _clipped(figures.last_undelivered),
            self._sources.open_letters(name),
            figures.last_attempts,
            *(figures.latency_ms or (-1.0, -1.0)),
        )
        self.newest[name] = entry
        self._judge(entry)
        return entry

    def _judge(self, entry: SubscriptionStatus) -> None:
        """Count the subscription among those that are stopped, those that fail, or neither."""
        assert self._page is not None, "begin comes first"
        state, _ = judged(entry, self._page.header.written_at_ms)
        for counted, is_one in ((self._stopped, "STOPPED"), (self._failing, "FAILING")):
            (counted.add if state == is_one else counted.discard)(entry.name)
