"""Promises to publishers about the order of keys: nothing overtakes a spooled message."""

import math
from collections import defaultdict

from hermes_chaos.sim.checkers.checker import Checker
from hermes_chaos.sim.history.events import Dropped, Event, Place, Published, Stored, Told


class SpoolKeepsOrder(Checker):
    """If a node acknowledged two messages of one key one after the other, the first with 202, the
    second is in no log before the first is in that log, unless another log had confirmed the first
    to the node.

    Later copies, caused by a crash that forgot what was sent or by a late append, are no disorder.
    Judged by where each message first appears in a log. Examined are pairs in sequence.
    """

    name = "the spool keeps the order"
    is_rare = True

    def __init__(self) -> None:
        super().__init__()
        self._published: dict[tuple[str, str, str], list[Published]] = defaultdict(list)
        self._first: dict[str, dict[Place, int]] = defaultdict(dict)
        # After how many events the message first appeared at a place, and a node first knew of it.
        self._order: dict[str, dict[Place, int]] = defaultdict(dict)
        self._known: dict[tuple[str, str], int] = {}
        self._events = 0

    def watch(self, event: Event) -> None:
        """Note the event; `finish` judges."""
        self._events += 1
        match event:
            case Stored(place, offset, message_id):
                self._first[message_id].setdefault(place, offset)
                self._order[message_id].setdefault(place, self._events)
            case Told(life, _, _, message_ids):
                node = life.partition("#")[0]
                for message_id in message_ids:
                    self._known.setdefault((node, message_id), self._events)
            case Dropped(place, end):
                for message_id, first in self._first.items():
                    if first.get(place, -1) >= end:
                        del first[place], self._order[message_id][place]
            case Published() if event.is_acknowledged and event.key and not event.idempotency_key:
                self._published[event.node, event.topic, event.key].append(event)
            case _:
                pass

    def finish(self) -> None:
        """Judge what is only known at the end."""
        for (node, _, key), published in self._published.items():
            for at, earlier in enumerate(published):
                if earlier.status == 202:
                    self._check(node, key, earlier, published[at + 1 :])

    def _check(self, node: str, key: str, earlier: Published, others: list[Published]) -> None:
        known = self._known.get((node, earlier.message_id), math.inf)
        for later in others:
            if later.began_s < earlier.ended_s:
                continue
            for place, offset in self._first[earlier.message_id].items():
                other = self._first[later.message_id].get(place)
                if other is None:
                    continue
                self.examined += 1
                if other < offset and known > self._order[later.message_id][place]:
                    self.violations.append(
                        f"{key} of {earlier.topic}: message {later.serial} ({later.status}) stands "
                        f"at {other} of {place}, before {earlier.serial} at {offset}, which "
                        f"{node} had kept at {earlier.ended_s:.3f}, before "
                        f"{later.began_s:.3f} when the other was sent"
                    )


class KeysKeepTheirOrder(Checker):
    """Messages of one key that were sent to a node one after the other and answered 201 are in that
    order in each log that has them, whatever their routes. Judged by where each first appears.
    Examined are pairs in sequence, without messages that have an idempotency key, which may have
    been sent before.
    """

    name = "keys keep their order"

    def __init__(self) -> None:
        super().__init__()
        self._published: dict[tuple[str, str, str], list[Published]] = defaultdict(list)
        self._first: dict[str, dict[Place, int]] = defaultdict(dict)

    def watch(self, event: Event) -> None:
        """Note the event; `finish` judges."""
        match event:
            case Stored(place, offset, message_id):
                self._first[message_id].setdefault(place, offset)
            case Dropped(place, end):
                for first in self._first.values():
                    if first.get(place, -1) >= end:
                        del first[place]
            case Published(status=201) if event.key and not event.idempotency_key:
                self._published[event.life, event.topic, event.key].append(event)
            case _:
                pass

    def finish(self) -> None:
        """Judge what is only known at the end."""
        for (life, topic, key), published in self._published.items():
            highest: dict[Place, tuple[int, Published]] = {}
            for each in sorted(published, key=lambda each: each.began_s):
                for place, offset in self._first[each.message_id].items():
                    at, earlier = highest.get(place, (-1, each))
                    self.examined += earlier is not each
                    if offset < at and earlier.began_s < each.began_s:
                        self.violations.append(
                            f"{key} of {topic}: message {each.serial}, which {life} was sent at "
                            f"{each.began_s:.3f}, stands at {offset} of {place}, before "
                            f"{earlier.serial} at {at}, sent at {earlier.began_s:.3f}"
                        )
                    if offset > at:
                        highest[place] = offset, each
