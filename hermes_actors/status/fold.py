"""The newest status of each node, folded from status records; silent nodes count as gone. Pure.

Ages are measured with the reader's own monotonic clock from the reading of a record, never with the
node's clock. While a log cannot be read, its nodes do not become silent.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

from msgspec import Struct

from hermes_actors.status.record import NodeHeader, StatusRecord, SubscriptionStatus, TopicStatus

GONE_AFTER_S = 10.0
"""A node without a record for this long is gone."""

FORGET_AFTER_S = 600.0
"""A node that is gone, or has left messages in its spool, is shown for this long."""

LEFT_SHOWN_S = 60.0
"""A node that has left with an empty spool is shown for this long; most pods return under another
name.
"""

NODES_MAX = 1_000
ENTRIES_MAX = 20_000
"""Maximum number of topics, and of subscriptions, kept for one node."""

_LATE_MAX = 1
"""How many records of an ended process may follow its successor's first one."""

E = TypeVar("E", TopicStatus, SubscriptionStatus)


class Reading(Struct, frozen=True):
    """Whether one datacentre's status is being followed.

    `trouble` says why not; empty string if it is. `since_ms` (wall clock) and `since_s` (monotonic)
    are when that began.
    """

    trouble: str
    since_ms: int
    since_s: float


class NodeView(Struct, frozen=True):
    """One node at one moment. `age_s` is the time since its last record.

    `is_unknown`: its datacentre's status cannot be read, so its state is not known. `has_rival`:
    another process reports under the same name.
    """

    header: NodeHeader
    age_s: float
    is_gone: bool
    is_unknown: bool
    has_rival: bool

    @property
    def is_there(self) -> bool:
        """True while its figures count."""
        return not (self.is_gone or self.is_unknown or self.header.is_leaving)


class _Entries(Generic[E]):
    """The newest entry of each name, with its round; a name missing from two rounds is removed."""

    def __init__(self) -> None:
        self.by_name: dict[str, tuple[int, E]] = {}
        self._round = 0

    def take(self, entries: tuple[E, ...], round_: int) -> None:
        if round_ > self._round:
            self._round = round_
            recent = self.by_name.items()
            self.by_name = {name: each for name, each in recent if each[0] >= round_ - 1}
        for entry in entries:
            if entry.name in self.by_name or len(self.by_name) < ENTRIES_MAX:
                self.by_name[entry.name] = round_, entry


class _NodeFold:
    """The state of one node: its newest process, and the previous one with its late records."""

    def __init__(self) -> None:
        self.header: NodeHeader | None = None
        self.seen_s = 0.0
        self.rival_s = float("-inf")
        self.topics: _Entries[TopicStatus] = _Entries()
        self.subscriptions: _Entries[SubscriptionStatus] = _Entries()
        self._before: NodeHeader | None = None
        self._late = 0

    def take(self, record: StatusRecord, now_s: float) -> bool:
        header, newest = record.header, self.header
        if newest is not None and header.boot_id == newest.boot_id:
            if header.sequence <= newest.sequence:
                return False
        elif newest is not None and self._is_late(header, now_s):
            return False
        else:
            self._before, self._late = newest, 0
            self.topics, self.subscriptions = _Entries(), _Entries()
        self.header, self.seen_s = header, now_s
        self.topics.take(record.topics, header.round)
        self.subscriptions.take(record.subscriptions, header.round)
        return True

    def _is_late(self, header: NodeHeader, now_s: float) -> bool:
        """True for a record of the previous process while its successor reports. If it continues,
        it is a rival.
        """
        before = self._before
        if before is None or header.boot_id != before.boot_id:
            return False
        if header.sequence <= before.sequence:
            # The log is being read again.
            return True
        if now_s - self.seen_s >= GONE_AFTER_S:
            return False
        self._before = header
        self._late += 1
        if self._late > _LATE_MAX:
            self.rival_s = now_s
        return True


class StatusFold:
    """The status of all nodes of all datacentres, written by readers and read by management.

    It holds at most NODES_MAX nodes; the one that was silent longest makes room. `now_s` is the
    reader's monotonic clock.
    """

    def __init__(self) -> None:
        self._nodes: dict[tuple[str, str], _NodeFold] = {}
        self._readings: dict[str, Reading] = {}

    def take(self, dc: str, record: StatusRecord, now_s: float) -> bool:
        """Fold a record of this datacentre's log. False if it is not new."""
        key = (dc, record.header.node)
        if key not in self._nodes:
            if len(self._nodes) >= NODES_MAX:
                del self._nodes[min(self._nodes, key=lambda each: self._nodes[each].seen_s)]
            self._nodes[key] = _NodeFold()
        return self._nodes[key].take(record, now_s)

    def forget(self, now_s: float) -> None:
        """Drop nodes that have been silent for FORGET_AFTER_S, or left LEFT_SHOWN_S ago."""
        for key, seen in list(self._nodes.items()):
            header = seen.header
            has_left = header is not None and header.is_leaving and not header.spooled
            if now_s - seen.seen_s > (LEFT_SHOWN_S if has_left else FORGET_AFTER_S):
                del self._nodes[key]

    def report(self, dc: str, trouble: str, now_ms: int, now_s: float) -> None:
        """Record why the datacentre's status is not followed from now on; empty string if it is."""
        reading = self._readings.get(dc)
        if reading is None or bool(reading.trouble) != bool(trouble):
            self._readings[dc] = Reading(trouble, now_ms, now_s)
        elif reading.trouble != trouble:
            self._readings[dc] = Reading(trouble, reading.since_ms, reading.since_s)

    @property
    def readings(self) -> dict[str, Reading]:
        """By datacentre, sorted: whether its status is followed."""
        return dict(sorted(self._readings.items()))

    @property
    def unknown(self) -> list[str]:
        """The datacentres whose status is not followed now."""
        return [dc for dc, reading in self.readings.items() if reading.trouble]

    def header(self, dc: str, node: str) -> NodeHeader | None:
        """The newest header of a node; None if it is unknown."""
        seen = self._nodes.get((dc, node))
        return None if seen is None else seen.header

    def nodes(self, now_s: float) -> list[NodeView]:
        """All nodes, sorted by datacentre and name."""
        return [self._view(key, self._nodes[key], now_s) for key in sorted(self._nodes)]

    def topic(self, name: str, now_s: float) -> Iterator[tuple[NodeView, TopicStatus]]:
        """Each node's entry for a topic, with the node."""
        for key in sorted(self._nodes):
            if found := self._nodes[key].topics.by_name.get(name):
                yield self._view(key, self._nodes[key], now_s), found[1]

    def subscription(
        self, name: str, now_s: float
    ) -> Iterator[tuple[NodeView, SubscriptionStatus]]:
        """Each node's entry for a subscription (`group.topic$name`) that it owns, with the node."""
        for key in sorted(self._nodes):
            if found := self._nodes[key].subscriptions.by_name.get(name):
                yield self._view(key, self._nodes[key], now_s), found[1]

    def topics_of(self, view: NodeView) -> list[TopicStatus]:
        """A node's known entries for the topics that it published to."""
        seen = self._nodes.get((view.header.dc, view.header.node))
        return [] if seen is None else [each for _, each in seen.topics.by_name.values()]

    def subscriptions_of(self, view: NodeView) -> list[SubscriptionStatus]:
        """A node's known entries for the subscriptions that it owns."""
        seen = self._nodes.get((view.header.dc, view.header.node))
        return [] if seen is None else [each for _, each in seen.subscriptions.by_name.values()]

    def _view(self, key: tuple[str, str], seen: _NodeFold, now_s: float) -> NodeView:
        reading = self._readings.get(key[0])
        assert seen.header is not None, "a node is known by its first record"
        unheard_s = now_s - seen.seen_s
        # While the log could not be read, no node could report.
        followed_s = 0.0 if reading is None or reading.trouble else now_s - reading.since_s
        return NodeView(
            header=seen.header,
            age_s=max(0.0, unheard_s),
            is_gone=min(unheard_s, followed_s) >= GONE_AFTER_S,
            is_unknown=reading is None or bool(reading.trouble),
            has_rival=now_s - seen.rival_s < GONE_AFTER_S,
        )
