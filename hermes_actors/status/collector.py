"""Collects a node's next status record from its parts. Pure.

It lives as long as the process, so that sequence and rates continue when the reporter is restarted.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import asdict, astuple, replace

from hermes_actors.status.dependencies import Dependency, notices, reasons
from hermes_actors.status.judging import judged
from hermes_actors.status.lag import UNKNOWN, Ends, Reached
from hermes_actors.status.rates import Rates
from hermes_actors.status.reasons import Code, Reason, because
from hermes_actors.status.record import (
    REASONS_MAX,
    Flow,
    NodeHeader,
    Published,
    SubscriptionFigures,
    SubscriptionStatus,
    TopicStatus,
    clip,
    encode,
    encode_part,
)

ENTRIES_MAX = 250
"""Maximum entries in one record; a node with more needs several seconds for a round. An entry takes
0.1 ms and more, so a node with thousands spends a few per cent of a core on them.
"""

_IN_A_TURN = 10
_GROWTH_BYTES = 192
"""Room in a record besides its entries and header, including what the numbers in the header may
grow.
"""


class NodeIdentity(Struct, frozen=True):
    """The reporting process. `boot_id` is new at each start."""

    dc: str
    node: str
    boot_id: str
    roles: tuple[str, ...]
    version: str
    started_at_ms: int


def _none(_name: str) -> None:
    return None


class Sources(Struct, frozen=True, kw_only=True):
    """The sources of the figures. None of them waits; they return None for something that is gone.

    `latency_ms` is p50 and p99 of a topic's publishes. `unplanned` is the first partition that no
    plan gives to anybody, None if another node reports these. `open_letters` is -1 if another node
    counts them. `spooled` is the number of messages on the disk, `elsewhere` how many were sent to
    other datacentres since the start. `pull` is where the node hands out messages of pull
    subscriptions: URL and key.
    """

    dependencies: Callable[[], Sequence[Dependency]] = tuple
    topics: Callable[[], Iterable[str]] = tuple
    published: Callable[[str], Published | None] = _none
    latency_ms: Callable[[str], tuple[float, float] | None] = _none
    subscriptions: Callable[[], Iterable[str]] = tuple
    consumed: Callable[[str], SubscriptionFigures | None] = _none
    reached: Callable[[str], Reached] = lambda _name: Reached()
    unplanned: Callable[[str], int | None] = _none
    open_letters: Callable[[str], int] = lambda _name: UNKNOWN
    spooled: Callable[[], int] = int
    elsewhere: Callable[[], int] = int
    pull: Callable[[], tuple[str, str]] = lambda: ("", "")


class Collector:
    """Makes one node's records, each of which continues where the last one ended.

    `missed` counts records that the log did not take, `newest` has the last status of each of the
    node's subscriptions, and `ends` tracks the ends of their topics.
    """

    def __init__(
        self, identity: NodeIdentity, sources: Sources, *, entries_max: int = ENTRIES_MAX
    ) -> None:
        self.identity = identity
        self.ends = Ends()
        self.missed = 0
        self.newest: dict[str, SubscriptionStatus] = {}
        self._sources = sources
        self._entries_max = entries_max
        self._sequence = self._round = self._topics = self._subscriptions = 0
        # The entries left in this round.
        self._left: deque[Callable[[int, float], TopicStatus | SubscriptionStatus | None]] = deque()
        self._published = Rates()
        self._consumed = Rates()
        self._elsewhere = Rates()
        self._log_topics: set[str] = set()
        # When this round and the previous one began; None if there is none.
        self._began_s: float | None = None
        self._began_before_s: float | None = None

    def record(
        self,
        now_ms: int,
        now_s: float,
        bytes_max: int,
        *,
        loop_lag_ms: float = 0.0,
        is_leaving: bool = False,
    ) -> Generator[None, None, bytes]:
        """Return the bytes of the next record, with a pause at each yield."""
        if not self._left:
            self._begin_round(now_s)
        self._sequence += 1
        identity, found = self.identity, self._sources.dependencies()
        (elsewhere_rate,) = self._elsewhere.update("", [self._sources.elsewhere()], now_s)
        header = NodeHeader(
            **asdict(identity),
            sequence=self._sequence,
            written_at_ms=now_ms,
            reasons=_few(reasons(found)),
            notices=_few(notices(found)),
            is_leaving=is_leaving,
            missed=self.missed,
            loop_lag_ms=round(loop_lag_ms, 1),
            round=self._round,
            topics=self._topics,
            subscriptions=self._subscriptions,
            spooled=self._sources.spooled(),
            elsewhere_rate=elsewhere_rate,
            pull=self._sources.pull(),
        )
        topics: list[bytes] = []
        subscriptions: list[bytes] = []
        room_bytes = bytes_max - len(encode_part(header)) - _GROWTH_BYTES
        while self._left and len(topics) + len(subscriptions) < self._entries_max:
            entry = self._left[0](now_ms, now_s)
            if entry is not None:
                encoded = encode_part(entry)
                is_too_large = len(encoded) > room_bytes
                if is_too_large and (topics or subscriptions):
                    break
                if not is_too_large:
                    room_bytes -= len(encoded)
                    (topics if isinstance(entry, TopicStatus) else subscriptions).append(encoded)
            self._left.popleft()
            if len(self._left) % _IN_A_TURN == 0:
                yield
        states = [each.state for each in self.newest.values()]
        header = replace(
            header,
            stopped_subscriptions=states.count("STOPPED"),
            failing_subscriptions=states.count("FAILING"),
            published_rate=self._published.total,
            delivered_rate=self._consumed.total,
        )
        return encode(encode_part(header), topics, subscriptions)

    def _begin_round(self, now_s: float) -> None:
        self._round += 1
        self._began_before_s, self._began_s = self._began_s, now_s
        topics, names = sorted(self._sources.topics()), sorted(self._sources.subscriptions())
        self._topics, self._subscriptions = len(topics), len(names)
        self._left.extend(partial(self._topic, name) for name in topics)
        self._left.extend(partial(self._subscription, name) for name in names)
        self._published.keep_only(set(topics))
        self._consumed.keep_only(set(names))
        for gone in self.newest.keys() - set(names):
            del self.newest[gone]
        self.ends.follow(sorted(self._log_topics))
        self._log_topics = set()

    def _topic(self, name: str, _now_ms: int, now_s: float) -> TopicStatus | None:
        counts = self._sources.published(name)
        if counts is None:
            return None
        # A topic appears once something was published to it, so its counters were 0 before this
        # round.
        rates = self._published.update(name, astuple(counts), now_s, self._began_before_s)
        return TopicStatus(name, counts, Published(*rates), self._sources.latency_ms(name))

    def _subscription(self, name: str, now_ms: int, now_s: float) -> SubscriptionStatus | None:
        figures = self._sources.consumed(name)
        if figures is None:
            self.newest.pop(name, None)
            return None
        reached = self._sources.reached(name)
        log_topic = reached.log_topic
        if log_topic:
            self._log_topics.add(log_topic)
        if reached.settled and (new := self.ends.added(log_topic, self._sources.unplanned(name))):
            reached = replace(reached, settled={**dict.fromkeys(new, 0), **reached.settled})
            named = because(Code.PARTITIONS_NEW, partitions=", ".join(map(str, new)))
            figures = replace(figures, reasons=(*figures.reasons, named))
        entry = SubscriptionStatus(
            **asdict(figures) | {"oldest_age_ms": reached.oldest_age_ms(now_ms)},
            name=name,
            rates=Flow(*self._consumed.update(name, astuple(figures.counts), now_s)),
            lag=self.ends.lag(reached, now_s),
            open_letters=self._sources.open_letters(name),
        )
        state, why = judged(entry, now_ms)
        last = figures.last_undelivered
        entry = replace(
            entry,
            state=state,
            reasons=tuple(map(_clipped, why[:REASONS_MAX])),
            last_failure=clip(figures.last_failure),
            last_undelivered=last and replace(last, reason=clip(last.reason)),
        )
        self.newest[name] = entry
        return entry


def _few(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(clip(each) for each in texts if each)[:REASONS_MAX]


def _clipped(reason: Reason) -> Reason:
    texts = {name: clip(value) for name, value in reason.params.items() if isinstance(value, str)}
    return replace(reason, params=reason.params | texts) if texts else reason
