"""Promises to subscriptions: every message arrives, unaltered, and no offset is settled
too early.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from hermes_actors.log.commits import Progress, decode
from hermes_chaos.sim.checkers.checker import Checker, shown
from hermes_chaos.sim.checkers.publishing import AcknowledgedAreStored
from hermes_chaos.sim.history.events import (
    Answer,
    Committed,
    Delivery,
    Dropped,
    Event,
    Expired,
    Lettered,
    Place,
    Published,
    Sought,
    Stored,
    serial_of,
)
from hermes_chaos.sim.history.settlements import Seeks, Settlements
from hermes_chaos.sim.workload.subject import Audience, Subject


class AcknowledgedAreDelivered(Checker):
    """Each acknowledged message reaches each subscription, or is a dead letter at the end, or was
    refused for good where no dead letters are kept, or was filtered out or skipped by a
    retransmission.

    `stored` knows the messages that an allowed leader change dropped. Records stored where the log
    had lost its end are not owed to consumers that started there with an earlier commit.
    """

    name = "acknowledged are delivered"

    def __init__(self, subject: Subject, stored: AcknowledgedAreStored) -> None:
        super().__init__()
        self._audiences = subject.by_name
        self._stored = stored
        self._owed: dict[str, dict[str, Published]] = {
            audience.name: {} for audience in subject.audiences if not audience.is_late
        }
        self._done: dict[str, set[str]] = {name: set() for name in self._audiences}
        self._took: dict[tuple[str, str, str], set[str]] = {}
        self._settlements = Settlements(subject)
        self._lettered: dict[str, set[str]] = {name: set() for name in self._audiences}
        self._kept: dict[str, set[str]] | None = None
        self._records: dict[str, list[Stored]] = {}
        self._by_group = {audience.group: audience for audience in subject.audiences}
        self._home = "".join(subject.dcs[:1])
        self._before: dict[str, set[str]] = {}
        self._seeks = Seeks()
        self._begun: set[tuple[str, Place, int]] = set()
        self.examined = 0
        self.discarded = 0
        self.violations: list[str] = []

    def watch(self, event: Event) -> None:
        """Note and check the event."""
        match event:
            case Published() if event.is_acknowledged:
                for name, owed in self._owed.items():
                    audience = self._audiences[name]
                    is_before = event.message_id in self._before.get(name, ())
                    is_for_it = audience.topic == event.topic and audience.wants(event.body)
                    if is_for_it and not is_before:
                        owed[event.message_id] = event
            case Delivery(is_processed=True) if self._is_for_one(event.subscription):
                self._done[event.subscription].add(event.message_id)
            case Answer() if self._audiences[event.subscription].settles(event.status):
                if event.status >= 400:
                    self.discarded += 1
                self._settlements.watch(event)
                if self._settlements.at_s(event.dc, event.subscription, event.message_id) >= 0:
                    self._done[event.subscription].add(event.message_id)
            case Lettered(letter=letter):
                self.discarded += 1
                self._lettered[letter.subscription].add(letter.message_id)
            case Stored():
                self._records.setdefault(event.topic, []).append(event)
            case Sought():
                self._seeks.watch(event)
                self._skip(event)
            case Committed() if event.group in self._by_group:
                self._begin(event, self._by_group[event.group].name)
            case _:
                pass

    def _is_for_one(self, name: str) -> bool:
        return self._audiences[name].recipients == 1

    def _skip(self, sought: Sought) -> None:
        """Messages before the target of a retransmission are not owed any more."""
        name, positions = sought.subscription, sought.positions
        for each in self._records.get(self._audiences[name].topic, ()):
            if each.place[0] != sought.dc:
                continue
            if positions is not None:
                is_before = each.offset < positions.get(each.place[2], 0)
            else:
                is_before = each.timestamp_ms < (sought.time_ms or 0)
            if is_before:
                self._done[name].add(each.message_id)

    def _begin(self, event: Committed, name: str) -> None:
        """The first commit after a retransmission by time shows its target. Older messages that a
        spool stored in the meantime are skipped, too.
        """
        place, progress = event.place, decode(event.commit)
        number = progress.ownership.seek if progress.ownership is not None else 0
        sought = self._seeks.find(place[0], name, number)
        if sought is None or sought.positions is not None or (name, place, number) in self._begun:
            return
        self._begun.add((name, place, number))
        for each in self._records.get(self._audiences[name].topic, ()):
            is_before = each.offset < progress.position and each.timestamp_ms < (
                sought.time_ms or 0
            )
            if each.place == place and is_before:
                self._done[name].add(each.message_id)

    def keeps(self, letters: Mapping[str, set[str]]) -> None:
        """Set the messages of each subscription whose dead letters are open at the end."""
        self._kept = {name: letters.get(name, set()) for name in self._audiences}

    def created(self, name: str) -> None:
        """A late subscription begins: messages acknowledged from now on are owed to it, except
        those already in the log of the datacentre where it is created.
        """
        self._owed[name] = {}
        records = self._records.get(self._audiences[name].topic, ())
        self._before[name] = {each.message_id for each in records if each.place[0] == self._home}

    def removing(self, name: str) -> None:
        """A subscription is about to be removed: nothing is owed to it any more."""
        self.examined += len(self._owed.pop(name, {}))

    def pending(self) -> dict[str, list[int]]:
        """For each subscription that is still owed messages, their serials."""
        pending: dict[str, list[int]] = {}
        for name, owed in self._owed.items():
            letters = self._lettered if self._kept is None else self._kept
            done = self._done[name] | letters[name] | self._stored.lost
            serials = [each.serial for key, each in owed.items() if key not in done]
            if serials:
                pending[name] = serials
        return pending

    def finish(self) -> None:
        """Judge what is only known at the end."""
        self.examined += sum(map(len, self._owed.values()))
        for name, serials in self.pending().items():
            self.violations.append(
                f"{name} never got {len(serials)} acknowledged messages: {shown(serials)}"
            )


class CommitsPassOnlySettled(Checker):
    """At every commit, each offset below its position or in its intervals is settled: every
    recipient took it, its dead letter is stored, or a filter rejects it.

    Records removed by retention count as settled. A commit after a retransmission carries its
    number and counts from its target, above which everything must be settled again. In the end
    every commit carries the last number.

    A commit refers to the log that held its last-read record. When the log has lost its end, a dead
    owner's commit may arrive late, and a new owner may repeat, in its own name and before it has
    read anything, the commit that it found. A consumer that starts with either detects by that
    record that the log has changed.
    """

    name = "commits pass only settled offsets"

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self._by_group = {audience.group: audience for audience in subject.audiences}
        self._by_name = subject.by_name
        self._ids: dict[Place, dict[int, str]] = {}
        self._settlements = Settlements(subject)
        self._seeks = Seeks()
        self._starts: dict[Place, int] = {}
        self._proven: dict[tuple[str, int, int, Place], int] = {}
        self._unwanted: dict[str, set[str]] = {
            audience.name: set() for audience in subject.audiences if audience.wants_even
        }
        self._last: dict[tuple[str, Place], int] = {}
        self._said: set[tuple[tuple[str, int, int, Place], Progress]] = set()

    def watch(self, event: Event) -> None:
        """Note and check the event."""
        match event:
            case Dropped(place, end):
                for key, proven in self._proven.items():
                    if key[3] == place:
                        self._proven[key] = min(proven, end)
            case Stored(place, offset, message_id, body):
                self._ids.setdefault(place, {})[offset] = message_id
                for name, unwanted in self._unwanted.items():
                    if not self._by_name[name].wants(body):
                        unwanted.add(message_id)
            case Answer() | Lettered():
                self._settlements.watch(event)
            case Sought():
                self._seeks.watch(event)
            case Expired(place, start):
                self._starts[place] = start
            case Committed() if event.group in self._by_group:
                self._check(event, self._by_group[event.group])
            case _:
                pass

    def _check(self, event: Committed, audience: Audience) -> None:
        self.examined += 1
        place, progress = event.place, decode(event.commit)
        ids = self._ids.get(place, {})
        owner = progress.ownership
        life, number = (0, 0) if owner is None else (owner.incarnation, owner.seek)
        # The product decides where a late subscription begins; messages after that are owed.
        first, since_s = progress.position if audience.is_late else 0, 0.0
        if sought := self._seeks.find(place[0], audience.name, number):
            positions, since_s = sought.positions, sought.at_s
            first = (
                progress.position
                if positions is None
                else max(positions.get(place[2], 0), self._starts.get(place, 0))
            )
        elif number:
            self.violations.append(
                f"{audience.name} committed {progress.position} of {place} for retransmission "
                f"{number}, which nobody has heard of"
            )
            return
        self._last[audience.name, place] = number
        key = audience.name, life, number, place
        said = progress
        if progress.last_read is not None:
            said = replace(progress, ownership=None)
        if (key, said) in self._said:
            return
        self._said.add((key, said))
        proven = self._proven.get(key, first)
        claimed = list(range(proven, progress.position))
        for first, end in progress.intervals:
            claimed.extend(range(max(first, proven), end))
        start = self._starts.get(place, 0)
        passed = [
            offset
            for offset in claimed
            if offset >= start
            and (
                offset not in ids
                or not self._is_settled(place[0], audience.name, ids[offset], since_s)
            )
        ]
        if passed:
            self.violations.append(
                f"{audience.name} committed {progress.position} of {place[0]}/{place[1]}/"
                f"{place[2]} over {len(passed)} unsettled offsets: {shown(passed)}"
            )
        self._proven[key] = max(proven, progress.position)

    def _is_settled(self, dc: str, name: str, message_id: str, since_s: float) -> bool:
        if name in self._unwanted and message_id in self._unwanted[name]:
            return True
        return self._settlements.at_s(dc, name, message_id) >= since_s

    def finish(self) -> None:
        """In the end each moved partition must be committed with the number of its last
        retransmission.
        """
        numbers = {(s.dc, s.subscription): s.number for s in self._seeks.last()}
        for (name, place), number in self._last.items():
            wanted = numbers.get((place[0], name), 0)
            if number < wanted:
                self.violations.append(
                    f"{name}: the last commit of {place} carries the retransmission {number}, and "
                    f"the last one is {wanted}"
                )


class PayloadsAreIntact(Checker):
    """A log holds what was published: body, key, trace context and the publisher's datacentre,
    whatever the route. A subscriber gets the same body, with the message's id, on its topic.
    """

    name = "payloads are intact"

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self._topic_of = {audience.name: audience.topic for audience in subject.audiences}
        self._published: dict[int, Published] = {}
        self._stored_ids: dict[int, set[str]] = {}

    def begin(self, published: Published) -> None:
        """A request is about to be sent: from now on its message may appear."""
        self._published[published.serial] = published

    def watch(self, event: Event) -> None:
        """Note and check the event."""
        match event:
            case Stored(body=body, message_id=message_id):
                serial = serial_of(body)
                if serial is not None:
                    self._stored_ids.setdefault(serial, set()).add(message_id)
                fault = self._fault_of_stored(event, serial)
                if fault:
                    self.violations.append(f"{event.place} holds {message_id!r}: {fault}")
            case Delivery():
                self.examined += 1
                fault = self._fault_of(event)
                if fault:
                    self.violations.append(
                        f"{event.subscription} got {event.message_id!r}: {fault}"
                    )
            case _:
                pass

    def _fault_of_stored(self, stored: Stored, serial: int | None) -> str:
        published = None if serial is None else self._published.get(serial)
        if published is None:
            return f"a body that nobody published: {stored.body[:40]!r}"
        for what, found, sent in (
            ("bytes", stored.body, published.body),
            ("topic", stored.topic, published.topic),
            ("key", stored.key, published.key),
            ("trace context", stored.trace, published.trace),
            ("datacentre", stored.dc, published.dc),
        ):
            if found != sent:
                return f"message {serial} with the {what} {found[:60]!r}, sent with {sent[:60]!r}"
        return ""

    def _fault_of(self, delivery: Delivery) -> str:
        serial = serial_of(delivery.body)
        published = None if serial is None else self._published.get(serial)
        if published is None:
            return f"a body that nobody published: {delivery.body[:40]!r}"
        if published.body != delivery.body:
            return f"message {serial} with altered bytes"
        if published.topic != self._topic_of[delivery.subscription]:
            return f"message {serial} of the foreign topic {published.topic}"
        if delivery.message_id not in self._stored_ids.get(published.serial, ()):
            return f"message {serial} under an id that no log has stored it under"
        return ""
