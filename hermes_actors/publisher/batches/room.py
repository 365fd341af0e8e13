"""Bounds what batches have under way: messages of each topic, and bytes of all topics. Pure."""

from collections import Counter
from collections.abc import Callable

from msgspec import Struct

from hermes_actors.publisher.pending import Route


class Need(Struct, eq=False):
    """The room that some messages of a batch need. `wake` is called if they get it later."""

    route: Route
    count: int
    size_bytes: int
    wake: Callable[[], None]
    is_given: bool = False


class Room:
    """At most `messages_max` of a topic and `bytes_max` of all topics are under way; a need above a
    bound is met when nothing else is under way. First come, first served, for each topic.
    """

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self.messages: Counter[Route] = Counter()
        self.size_bytes = 0
        self._waiting: dict[Need, None] = {}

    def take(self, need: Need) -> bool:
        """Ask for the room. True if it is given now; else it is given later, unless `leave` is
        called.
        """
        if not need.is_given:
            self._waiting[need] = None
            self._give(need)
        return need.is_given

    def leave(self, need: Need) -> None:
        """Release the room, or stop waiting for it."""
        self._waiting.pop(need, None)
        if need.is_given:
            need.is_given = False
            self.size_bytes -= need.size_bytes
            self.messages[need.route] -= need.count
            if not self.messages[need.route]:
                del self.messages[need.route]
        self._give(None)

    def _give(self, asking: Need | None) -> None:
        full: set[Route] = set()
        for need in list(self._waiting):
            route, under_way = need.route, self.messages.get(need.route, 0)
            if under_way and under_way + need.count > self._messages_max:
                full.add(route)
            if route in full:
                continue
            if self.size_bytes and self.size_bytes + need.size_bytes > self._bytes_max:
                return
            del self._waiting[need]
            need.is_given = True
            self.messages[route] += need.count
            self.size_bytes += need.size_bytes
            if need is not asking:
                need.wake()
