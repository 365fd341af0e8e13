"""What subscriptions were promised: all of it, unaltered, and nothing settled before its time."""

from hermes_actors.log.commits import decode
from hermes_chaos.sim.checker import Audience, Checker, Subject, shown
from hermes_chaos.sim.checkers_publishing import AcknowledgedAreStored
from hermes_chaos.sim.history import (
    Answer,
    Committed,
    Delivery,
    Event,
    Expired,
    Place,
    Published,
    Stored,
    serial_of,
)


class AcknowledgedAreDelivered(Checker):
    """Each acknowledged message reaches each subscription, or is refused by it for good.

    `stored` says which messages an allowed leader change took.
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
        self.examined = 0
        self.discarded = 0
        self.violations: list[str] = []

    def watch(self, event: Event) -> None:
        """Take note, and check."""
        match event:
            case Published() if event.is_acknowledged:
                for name, owed in self._owed.items():
                    if self._audiences[name].topic == event.topic:
                        owed[event.message_id] = event
            case Delivery(is_processed=True):
                self._done[event.subscription].add(event.message_id)
            case Answer() if self._audiences[event.subscription].settles(event.status):
                if event.status >= 400:
                    self.discarded += 1
                self._done[event.subscription].add(event.message_id)
            case _:
                pass

    def created(self, name: str) -> None:
        """A late subscription is there: whatever is acknowledged from now on is owed to it."""
        self._owed[name] = {}

    def removing(self, name: str) -> None:
        """A subscription is about to be removed: nothing is owed to it any more."""
        self.examined += len(self._owed.pop(name, {}))

    def pending(self) -> dict[str, list[int]]:
        """For each subscription the serials of messages that it is still owed; only such ones."""
        pending: dict[str, list[int]] = {}
        for name, owed in self._owed.items():
            done = self._done[name] | self._stored.lost
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
    """At every commit, each offset below its position or in its intervals has been settled.

    What retention has removed counts as settled.
    """

    name = "commits pass only settled offsets"

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self._by_group = {audience.group: audience for audience in subject.audiences}
        self._by_name = subject.by_name
        self._ids: dict[Place, dict[int, str]] = {}
        self._settled: set[tuple[str, str, str]] = set()
        self._starts: dict[Place, int] = {}
        self._proven: dict[tuple[str, int, Place], int] = {}

    def watch(self, event: Event) -> None:
        """Take note, and check."""
        match event:
            case Stored(place, offset, message_id):
                self._ids.setdefault(place, {})[offset] = message_id
            case Answer(dc, subscription, message_id, status):
                if self._by_name[subscription].settles(status):
                    self._settled.add((dc, subscription, message_id))
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
        # Where a late subscription begins is for the product to say; it is owed what comes after.
        first = progress.position if audience.is_late else 0
        life = 0 if progress.ownership is None else progress.ownership.incarnation
        proven = self._proven.get((audience.name, life, place), first)
        claimed = list(range(proven, progress.position))
        for first, end in progress.intervals:
            claimed.extend(range(max(first, proven), end))
        start = self._starts.get(place, 0)
        passed = [
            offset
            for offset in claimed
            if offset >= start
            and (offset not in ids or (place[0], audience.name, ids[offset]) not in self._settled)
        ]
        if passed:
            self.violations.append(
                f"{audience.name} committed {progress.position} of {place[0]}/{place[1]}/"
                f"{place[2]} over {len(passed)} unsettled offsets: {shown(passed)}"
            )
        self._proven[audience.name, life, place] = max(proven, progress.position)


class PayloadsAreIntact(Checker):
    """A log holds what was published: the bytes, the key, the trace context, the publisher's DC,
    whichever way it took. A subscriber gets these bytes, under the message's id, on its own topic.
    """

    name = "payloads are intact"

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self._topic_of = {audience.name: audience.topic for audience in subject.audiences}
        self._published: dict[int, Published] = {}
        self._stored_ids: dict[int, set[str]] = {}

    def begin(self, published: Published) -> None:
        """The request is about to be sent: from now on its message may appear."""
        self._published[published.serial] = published

    def watch(self, event: Event) -> None:
        """Take note, and check."""
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
