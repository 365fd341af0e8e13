"""The promise to subscriptions that are created: nothing of before, where they are created."""

from collections import defaultdict
from collections.abc import Callable

from hermes_chaos.sim.checkers.checker import Checker
from hermes_chaos.sim.history.events import Delivery, Dropped, Event, Place, Stored
from hermes_chaos.sim.workload.subject import Subject


class NothingOfBeforeIsHanded(Checker):
    """A new subscription is handed nothing that the log of the datacentre where it is created held
    before anybody asked for it, and let be read: not what its followers had not copied yet.

    Told by the world of its first life only: of a later one nobody could tell what the one before
    had under way. A log that has lost its end may give what is older.
    """

    name = "nothing of before a subscription is handed to it"
    is_rare = True

    def __init__(self, subject: Subject, dc: str, end_of: Callable[[Place], int]) -> None:
        """`dc` is where they are created, `end_of` up to where a log lets be read now."""
        super().__init__()
        self._dc = dc
        self._end_of = end_of
        self._topic_of = {audience.name: audience.topic for audience in subject.audiences}
        # Topic → message → all its copies.
        self._held: dict[str, dict[str, list[tuple[Place, int]]]] = defaultdict(dict)
        self._before: dict[str, set[str]] = {}
        self._watched: set[str] = set()
        self._lost: set[str] = set()
        self._ended: set[str] = set()

    def creating(self, name: str) -> None:
        """Note that the product is about to be asked for it, perhaps not for the first time."""
        if name not in self._before:
            self._before[name] = {
                message_id
                for message_id, copies in self._held[self._topic_of[name]].items()
                if any(offset < self._end_of(place) for place, offset in copies)
            }

    def created(self, name: str, is_exact: bool) -> None:
        """Begin. `is_exact`: it was created while the log told its ends."""
        is_judged = name not in self._ended and self._topic_of[name] not in self._lost
        if is_exact and is_judged and self._before[name]:
            self._watched.add(name)

    def removing(self, name: str) -> None:
        """End with a subscription that is about to be removed."""
        self._watched.discard(name)
        self._ended.add(name)

    def watch(self, event: Event) -> None:
        """Take note, and check."""
        match event:
            case Stored(place=(self._dc, _, _)):
                copies = self._held[event.topic].setdefault(event.message_id, [])
                copies.append((event.place, event.offset))
                for name, before in self._before.items():
                    if self._topic_of[name] == event.topic:
                        # Stored once more, it is one of after.
                        before.discard(event.message_id)
            case Dropped(place=(self._dc, topic, _)):
                self._lost.add(topic)
                self._watched = {each for each in self._watched if self._topic_of[each] != topic}
            case Delivery(dc=self._dc) if event.subscription in self._watched:
                self.examined += 1
                if event.message_id in self._before[event.subscription]:
                    self.violations.append(
                        f"{event.subscription} got {event.message_id!r}, which its log held before"
                    )
            case _:
                pass
