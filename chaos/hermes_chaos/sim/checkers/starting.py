"""The promise to new subscriptions: no older messages, in the datacentre where they are created."""

from collections import defaultdict
from collections.abc import Callable

from hermes_chaos.sim.checkers.checker import Checker
from hermes_chaos.sim.history.events import Delivery, Dropped, Event, Place, Stored
from hermes_chaos.sim.workload.subject import Subject


class NothingOfBeforeIsHanded(Checker):
    """A new subscription gets no message that could be read in the log of its datacentre before the
    first request to create it. Records that were not replicated yet do not count.

    Judged only for its first life, because a later one may get what the previous one had under way.
    A log that has lost its end may return older messages.
    """

    name = "nothing of before a subscription is handed to it"
    is_rare = True

    def __init__(self, subject: Subject, dc: str, end_of: Callable[[Place], int]) -> None:
        """`dc` is where subscriptions are created; `end_of` is the offset up to which a log can be
        read.
        """
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
        """The subscription is about to be requested, perhaps repeatedly."""
        if name not in self._before:
            self._before[name] = {
                message_id
                for message_id, copies in self._held[self._topic_of[name]].items()
                if any(offset < self._end_of(place) for place, offset in copies)
            }

    def created(self, name: str, is_exact: bool) -> None:
        """The subscription was created. `is_exact`: while the log told its ends."""
        is_judged = name not in self._ended and self._topic_of[name] not in self._lost
        if is_exact and is_judged and self._before[name]:
            self._watched.add(name)

    def removing(self, name: str) -> None:
        """The subscription is about to be removed."""
        self._watched.discard(name)
        self._ended.add(name)

    def watch(self, event: Event) -> None:
        """Note and check the event."""
        match event:
            case Stored(place=(self._dc, _, _)):
                copies = self._held[event.topic].setdefault(event.message_id, [])
                copies.append((event.place, event.offset))
                for name, before in self._before.items():
                    if self._topic_of[name] == event.topic:
                        # A copy stored now counts as new.
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
