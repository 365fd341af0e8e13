"""Promises to subscribers about order: nothing is pushed before what must come first."""

from collections import defaultdict

from hermes_chaos.sim.checkers.checker import Checker
from hermes_chaos.sim.history.events import (
    Adopted,
    Answer,
    Attempted,
    Dropped,
    Event,
    Expired,
    Lettered,
    Lettering,
    Place,
    Sought,
    Stored,
)
from hermes_chaos.sim.history.settlements import Settlements
from hermes_chaos.sim.workload.subject import Audience, Subject

ENVELOPE_BYTES = 500
"""More than a batch adds to a message."""


class _Line:
    """The records of one partition (and key) in order, and which are settled."""

    def __init__(self) -> None:
        self.records: list[tuple[int, str]] = []
        self.settled = 0
        self.highest = -1


class OrderIsKept(Checker):
    """An ordered subscription's message is pushed only when all earlier ones of its key in its
    partition are settled, and never after a later one by the same consumer. A batch is pushed when
    all earlier messages of its partitions are settled or in it.

    A retransmission starts a new order, in which records above its target are settled anew. Pushes
    of a node that has not heard of it yet are not judged.
    """

    name = "order is kept"
    is_rare = True

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self._by_name = subject.by_name
        self._of_topic: dict[str, list[Audience]] = defaultdict(list)
        for audience in subject.audiences:
            if audience.is_ordered or audience.batch is not None:
                self._of_topic[audience.topic].append(audience)
        self._names = {each.name for some in self._of_topic.values() for each in some}
        self._settlements = Settlements(subject)
        self._lines: dict[tuple[str, str, int, str], _Line] = defaultdict(_Line)
        self._where: dict[tuple[str, str, str], tuple[int, int, str] | None] = {}
        self._key_at: dict[tuple[str, str, int, int], str] = {}
        self._starts: dict[tuple[str, str, int], int] = defaultdict(int)
        self._since_s: dict[tuple[str, str, int], float] = defaultdict(float)
        self._refused: set[tuple[str, str, str]] = set()
        self._sought: dict[tuple[str, str], float] = {}
        self._seeks: dict[tuple[str, str], int] = defaultdict(int)
        # By life and subscription: the last known retransmission, its time, and the last start.
        self._heard: dict[tuple[str, str], tuple[int, float]] = {}
        self._adopted_s: dict[tuple[str, str], float] = {}

    def watch(self, event: Event) -> None:
        """Note and check the event."""
        match event:
            case Stored() if event.topic in self._of_topic:
                for audience in self._of_topic[event.topic]:
                    self._add(audience, event)
            case Answer(subscription=name) if name in self._names:
                self._settlements.watch(event)
                if self._by_name[name].batch is not None and self._by_name[name].ends(event.status):
                    # The next batch does not wait until the letters of this one are stored.
                    self._refused.add((event.dc, name, event.message_id))
            case Lettering(dc=dc, letter=letter) if letter.subscription in self._names:
                # Nor for the letter of a message that was given up unread.
                if self._by_name[letter.subscription].batch is not None:
                    self._refused.add((dc, letter.subscription, letter.message_id))
            case Lettered(letter=letter) if letter.subscription in self._names:
                self._settlements.watch(event)
            case Dropped(place, end):
                self._cut(place, end)
            case Expired(place, start):
                self._expire(place, start)
            case Sought(subscription=name) if name in self._names:
                self._heard[event.node, name] = event.number, event.at_s
                # A restarted node hears of old retransmissions, too; they start nothing new.
                if event.number > self._seeks[event.dc, name]:
                    self._seeks[event.dc, name] = event.number
                    self._sought[event.dc, name] = event.at_s
                    self._renew(event)
            case Adopted(node, name) if name in self._names:
                self._adopted_s[node, name] = event.at_s
                self._begin_anew(node.partition("-")[0], name)
            case Attempted(subscription=name) if name in self._names:
                self._check(event)
            case _:
                pass

    def _add(self, audience: Audience, stored: Stored) -> None:
        dc, _, partition = stored.place
        key = stored.key if audience.is_ordered else ""
        if audience.is_ordered and not key:
            # The offset may have belonged to another record, which a leader change dropped.
            self._key_at.pop((dc, audience.name, partition, stored.offset), None)
            return
        if audience.batch is not None and len(stored.body) > audience.batch[1] - ENVELOPE_BYTES:
            # It fits into no batch, and the others do not wait for it.
            return
        name, offset = audience.name, stored.offset
        self._lines[dc, name, partition, key].records.append((offset, stored.message_id))
        at = dc, name, stored.message_id
        # Of two copies it is unclear which one is in a batch.
        self._where[at] = None if at in self._where else (partition, offset, key)
        self._key_at[dc, name, partition, offset] = key

    def _cut(self, place: Place, end: int) -> None:
        for (dc, name, partition, _), line in self._lines.items():
            if self._is_at(place, dc, name, partition):
                line.records = [each for each in line.records if each[0] < end]
                line.settled = min(line.settled, len(line.records))
                line.highest = min(line.highest, end - 1)

    def _expire(self, place: Place, start: int) -> None:
        for dc, name, partition, _ in list(self._lines):
            if self._is_at(place, dc, name, partition):
                at = dc, name, partition
                self._starts[at] = max(self._starts[at], start)

    def _is_at(self, place: Place, dc: str, name: str, partition: int) -> bool:
        topic = self._by_name[name].topic.replace(".", "_")
        log_topic = place[1].replace(".", "_")
        return (place[0], place[2]) == (dc, partition) and log_topic.startswith(topic)

    def _renew(self, sought: Sought) -> None:
        """Start anew at the retransmission's target: above it only later settlements count, below
        it everything counts as settled.
        """
        for (dc, name, partition, _), line in self._lines.items():
            if (dc, name) == (sought.dc, sought.subscription):
                positions = sought.positions
                at = dc, name, partition
                # Without positions the target is unknown, so nothing more is claimed.
                target = 2**62 if positions is None else positions.get(partition, 0)
                self._starts[at] = max(self._starts[at], target) if positions is None else target
                self._since_s[at] = float("inf")
                line.settled = 0

    def _begin_anew(self, dc: str, name: str) -> None:
        """Start a consumer's lines anew after a start or a new version. A retransmission takes
        effect then.
        """
        for (line_dc, line_name, partition, _), line in self._lines.items():
            if (line_dc, line_name) == (dc, name):
                line.highest = -1
                if self._since_s[dc, name, partition] == float("inf"):
                    self._since_s[dc, name, partition] = self._sought[dc, name]

    def _has_heard(self, life: str, dc: str, name: str) -> bool:
        """True if the life consumes as of the last retransmission."""
        last = self._seeks[dc, name]
        number, at_s = self._heard.get((life, name), (0, 0.0))
        return not last or (number >= last and self._adopted_s.get((life, name), -1.0) >= at_s)

    def _check(self, attempt: Attempted) -> None:
        dc, name = attempt.dc, attempt.subscription
        if not self._has_heard(attempt.node, dc, name):
            return
        if attempt.sequence is not None:
            partition, offset = attempt.sequence
            key = self._key_at.get((dc, name, partition, offset))
            if key is not None:
                self._check_one(attempt, partition, offset, key, frozenset())
            return
        places = [self._where.get((dc, name, each)) for each in attempt.ids]
        for place in places:
            if place is not None:
                self._check_one(attempt, *place, frozenset(attempt.ids))

    def _check_one(
        self, attempt: Attempted, partition: int, offset: int, key: str, beside: frozenset[str]
    ) -> None:
        self.examined += 1
        dc, name = attempt.dc, attempt.subscription
        at = dc, name, partition
        line = self._lines[dc, name, partition, key]
        if self._since_s[at] == float("inf"):
            return
        if offset < line.highest and not attempt.retries and not beside:
            self.violations.append(
                f"{name} was pushed {attempt.message_id} at {partition}/{offset} of {dc} at "
                f"{attempt.at_s:.3f}, after {line.highest} of the same key {key!r}"
            )
        line.highest = max(line.highest, offset)
        self._check_earlier(attempt, line, at, offset, beside)

    def _check_earlier(
        self,
        attempt: Attempted,
        line: _Line,
        at: tuple[str, str, int],
        offset: int,
        beside: frozenset[str],
    ) -> None:
        dc, name, partition = at
        start, since_s = self._starts[at], self._since_s[at]
        for number in range(line.settled, len(line.records)):
            earlier, message_id = line.records[number]
            if earlier >= offset or message_id in beside:
                return
            is_refused = (dc, name, message_id) in self._refused
            settled_s = self._settlements.at_s(dc, name, message_id)
            if earlier >= start and settled_s < since_s and not is_refused:
                self.violations.append(
                    f"{name} was pushed {attempt.message_id} at {partition}/{offset} of {dc} at "
                    f"{attempt.at_s:.3f}, before {message_id} at {earlier} was settled"
                )
                return
            line.settled = number + 1
