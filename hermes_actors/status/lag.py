"""How far consumers are behind the end of their topics, asked of the log in turn. Pure."""

from collections.abc import Collection, Mapping

INTERVAL_S = 2.0
"""How often a topic's end is asked for, while there are few: ten a second are asked at most."""

VALID_S = 60.0
"""How long an answer counts; after that the lag is not known."""

UNKNOWN = -1


class Ends:
    """The ends of the topics that are consumed here, none of them asked for too often."""

    def __init__(self) -> None:
        # In the order in which they were asked for: who was asked first is due first.
        self._asked_s: dict[str, float] = {}
        self._ends: dict[str, tuple[float, Mapping[int, int]]] = {}

    def follow(self, topics: Collection[str]) -> None:
        """From now on these are the topics that are consumed."""
        for topic in [topic for topic in self._asked_s if topic not in topics]:
            del self._asked_s[topic]
            self._ends.pop(topic, None)
        new = {topic: float("-inf") for topic in topics if topic not in self._asked_s}
        if new:
            self._asked_s = {**new, **self._asked_s}

    def due(self, now_s: float) -> str | None:
        """The topic to ask for now; it counts as asked. None: none is due."""
        for topic, asked_s in self._asked_s.items():
            if now_s - asked_s < INTERVAL_S:
                return None
            del self._asked_s[topic]
            self._asked_s[topic] = now_s
            return topic
        return None

    def note(self, topic: str, ends: Mapping[int, int], now_s: float) -> None:
        """The topic's partitions end there."""
        if topic in self._asked_s:
            self._ends[topic] = (now_s, ends)

    def added(self, topic: str, since: int | None) -> list[int]:
        """The topic's partitions from `since` on; none for None."""
        _, ends = self._ends.get(topic, (0.0, {}))
        return [] if since is None else sorted(each for each in ends if each >= since)

    def lag(self, topic: str, reached: Mapping[int, int], now_s: float) -> int:
        """How many messages lie at or above what was reached; -1 when that is not known."""
        noted_s, ends = self._ends.get(topic, (float("-inf"), {}))
        # A partition whose end is not known was added just now.
        if not reached or now_s - noted_s > VALID_S or not reached.keys() <= ends.keys():
            return UNKNOWN
        return sum(max(0, ends[each] - at) for each, at in reached.items())
