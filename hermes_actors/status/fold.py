"""The newest status of each node, folded from status records; who is silent is gone. Pure.

Ages are measured without trusting anybody's wall clock: by the reader's own monotonic clock since
it read the record, and, for what it read late, by log time. That goes on by the difference of two
records' timestamps, at least 0 and at most 1 s, so neither a clock that steps nor an outage of the
log makes anybody look silent.
"""

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

from msgspec import Struct

from hermes_actors.status.record import NodeHeader, StatusRecord, SubscriptionStatus, TopicStatus

GONE_AFTER_S = 10.0
"""A node is gone when it has not been heard of for so long."""

FORGET_AFTER_S = 600.0
"""A node that is gone or has left is shown for so long."""

NODES_MAX = 1_000
ENTRIES_MAX = 20_000
"""The most that is kept of one node, topics and subscriptions each."""

_RETIRED_MAX = 8
_LATE_MIN = 2
_LOG_STEP_MAX_S = 1.0

E = TypeVar("E", TopicStatus, SubscriptionStatus)


class Reading(Struct, frozen=True):
    """Whether one datacentre's status is being followed.

    `trouble` says why not, "" when it is; `since_ms` and `since_s` (wall clock, monotonic) since
    when that is so.
    """

    trouble: str
    since_ms: int
    since_s: float


class NodeView(Struct, frozen=True):
    """One node at one moment. `age_s` is how long ago it was heard of.

    `is_unknown`: its datacentre's status cannot be read, so nothing can be said of it now.
    `has_rival`: another process reports under the same name.
    """

    header: NodeHeader
    age_s: float
    is_gone: bool
    is_unknown: bool
    has_rival: bool

    @property
    def is_there(self) -> bool:
        """True while what it says counts."""
        return not (self.is_gone or self.is_unknown or self.header.is_leaving)


class Rival(Struct, frozen=True):
    """A process that reports as `node` of `dc` while another one, `other_boot_id`, does too."""

    dc: str
    node: str
    boot_id: str
    other_boot_id: str


class _Entries(Generic[E]):
    """The newest entry of each name; what two rounds did not name is gone."""

    def __init__(self) -> None:
        self.by_name: dict[str, E] = {}
        self._rounds: dict[str, int] = {}
        self._round = 0

    def take(self, entries: tuple[E, ...], round_: int) -> None:
        if round_ > self._round:
            self._round = round_
            for name in [n for n, seen in self._rounds.items() if seen < round_ - 1]:
                del self.by_name[name], self._rounds[name]
        for entry in entries:
            if entry.name in self.by_name or len(self.by_name) < ENTRIES_MAX:
                self.by_name[entry.name] = entry
                self._rounds[entry.name] = round_


class _Retired:
    """A process that another one has followed: its newest record, and how many came after that."""

    __slots__ = ("is_told", "late", "sequence")

    def __init__(self) -> None:
        self.is_told = False
        self.sequence = 0
        self.late = 0


class _NodeFold:
    """The state of one node: its newest process, and the ones before."""

    def __init__(self, header: NodeHeader) -> None:
        self.header = header
        self.is_empty = True
        self.log_s = 0.0
        self.seen_s = 0.0
        self.retired: dict[str, _Retired] = {}
        self.rival_s = float("-inf")
        self.topics: _Entries[TopicStatus] = _Entries()
        self.subscriptions: _Entries[SubscriptionStatus] = _Entries()

    def take(self, record: StatusRecord, log_s: float, now_s: float) -> bool:
        header = record.header
        if header.boot_id != self.header.boot_id:
            retired = self.retired.get(header.boot_id)
            if retired is not None and header.sequence <= retired.sequence:
                # The log is read anew.
                return False
            if retired is not None and log_s - self.log_s < GONE_AFTER_S:
                # One record may come late; a process that goes on is a rival.
                retired.sequence = header.sequence
                retired.late += 1
                self.rival_s = now_s
                return False
            self._retire()
            self.topics, self.subscriptions = _Entries(), _Entries()
        elif header.sequence <= self.header.sequence and not self.is_empty:
            return False
        self.is_empty = False
        self.header = header
        self.log_s = log_s
        self.seen_s = now_s
        self.topics.take(record.topics, header.round)
        self.subscriptions.take(record.subscriptions, header.round)
        return True

    def finds_rival(self, boot_id: str) -> bool:
        """True when an earlier process turns out to go on, once for each."""
        retired = self.retired.get(boot_id)
        if retired is None or retired.is_told or retired.late < _LATE_MIN:
            return False
        retired.is_told = True
        return True

    def _retire(self) -> None:
        retired = self.retired.pop(self.header.boot_id, None) or _Retired()
        retired.sequence = self.header.sequence
        self.retired[self.header.boot_id] = retired
        if len(self.retired) > _RETIRED_MAX:
            del self.retired[next(iter(self.retired))]


class StatusFold:
    """The status of all nodes of all datacentres; readers put in, management looks.

    At most NODES_MAX nodes: the longest silent one makes room. Times `now_s` are the reader's
    monotonic clock.
    """

    def __init__(self) -> None:
        self.undecodable = 0
        self._nodes: dict[tuple[str, str], _NodeFold] = {}
        self._readings: dict[str, Reading] = {}
        self._log_times: dict[str, _LogTime] = {}
        self._new_rivals: deque[Rival] = deque(maxlen=NODES_MAX)

    def take(self, dc: str, record: StatusRecord, log_ms: int, now_s: float) -> bool:
        """Fold a record of this datacentre's log; False when it says nothing new."""
        log_s = self._log_times.setdefault(dc, _LogTime(log_ms)).advance(log_ms)
        key = (dc, record.header.node)
        seen = self._nodes.get(key)
        if seen is None:
            if len(self._nodes) >= NODES_MAX:
                silent = min(self._nodes, key=lambda each: self._nodes[each].seen_s)
                del self._nodes[silent]
            seen = self._nodes[key] = _NodeFold(record.header)
        is_taken = seen.take(record, log_s, now_s)
        if not is_taken and seen.finds_rival(record.header.boot_id):
            rival = Rival(dc, record.header.node, record.header.boot_id, seen.header.boot_id)
            self._new_rivals.append(rival)
        return is_taken

    def new_rivals(self) -> list[Rival]:
        """The processes that were found, since this was last asked, to report under a name that
        another one has too; each process once.
        """
        found = list(self._new_rivals)
        self._new_rivals.clear()
        return found

    def forget(self, now_s: float) -> None:
        """Drop the nodes that have been silent for FORGET_AFTER_S."""
        for key, seen in list(self._nodes.items()):
            if self._silent_s(key[0], seen, now_s - seen.seen_s) > FORGET_AFTER_S:
                del self._nodes[key]

    def report(self, dc: str, trouble: str, now_ms: int, now_s: float) -> None:
        """Record that the datacentre's status is followed ("") from now on, or why it is not."""
        reading = self._readings.get(dc)
        if reading is None or bool(reading.trouble) != bool(trouble):
            self._readings[dc] = Reading(trouble, now_ms, now_s)
        elif reading.trouble != trouble:
            self._readings[dc] = Reading(trouble, reading.since_ms, reading.since_s)

    @property
    def readings(self) -> dict[str, Reading]:
        """For each datacentre, sorted, whether its status is followed."""
        return dict(sorted(self._readings.items()))

    @property
    def unknown(self) -> list[str]:
        """The datacentres whose status is not followed now."""
        return [dc for dc, reading in self.readings.items() if reading.trouble]

    def nodes(self, now_s: float) -> list[NodeView]:
        """All nodes, sorted by datacentre and name."""
        return [self._view(key, self._nodes[key], now_s) for key in sorted(self._nodes)]

    def topic(self, name: str, now_s: float) -> Iterator[tuple[NodeView, TopicStatus]]:
        """Give each node's entry for a topic that it published to, with the node."""
        for key in sorted(self._nodes):
            seen = self._nodes[key]
            entry = seen.topics.by_name.get(name)
            if entry is not None:
                yield self._view(key, seen, now_s), entry

    def subscription(
        self, name: str, now_s: float
    ) -> Iterator[tuple[NodeView, SubscriptionStatus]]:
        """Give each node's entry for a subscription (`group.topic$name`) that it owns, with the
        node.
        """
        for key in sorted(self._nodes):
            seen = self._nodes[key]
            entry = seen.subscriptions.by_name.get(name)
            if entry is not None:
                yield self._view(key, seen, now_s), entry

    def subscriptions_of(self, view: NodeView) -> list[SubscriptionStatus]:
        """Give a node's entries for the subscriptions that it owns, as far as they are known."""
        seen = self._nodes.get((view.header.dc, view.header.node))
        return [] if seen is None else list(seen.subscriptions.by_name.values())

    def _silent_s(self, dc: str, seen: _NodeFold, by_reader_s: float) -> float:
        return max(0.0, self._log_times[dc].now_s - seen.log_s, by_reader_s)

    def _view(self, key: tuple[str, str], seen: _NodeFold, now_s: float) -> NodeView:
        dc = key[0]
        reading = self._readings.get(dc)
        unheard_s = now_s - seen.seen_s
        # While the log could not be read nobody could be heard: that is nobody's silence.
        followed_s = 0.0 if reading is None or reading.trouble else now_s - reading.since_s
        return NodeView(
            header=seen.header,
            age_s=self._silent_s(dc, seen, unheard_s),
            is_gone=self._silent_s(dc, seen, min(unheard_s, followed_s)) >= GONE_AFTER_S,
            is_unknown=reading is None or bool(reading.trouble),
            has_rival=now_s - seen.rival_s < GONE_AFTER_S,
        )


class _LogTime:
    """A clock that goes by a log's timestamps and cannot be led astray by them."""

    def __init__(self, log_ms: int) -> None:
        self.now_s = 0.0
        self._last_ms = log_ms

    def advance(self, log_ms: int) -> float:
        self.now_s += min(max(0.0, (log_ms - self._last_ms) / 1_000), _LOG_STEP_MAX_S)
        self._last_ms = log_ms
        return self.now_s
