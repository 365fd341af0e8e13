"""Measures how far consumers are behind the ends of their topics; the ends are looked up in turn.
Pure.
"""

from collections.abc import Collection, Mapping

INTERVAL_S = 2.0
"""Minimum interval between two look-ups of a topic's end; ten look-ups a second at most."""

VALID_S = 60.0
"""How long an answer is valid; after that the lag is unknown."""

UNKNOWN = -1


class Ends:
    """The ends of the topics that are consumed here, looked up at a limited rate."""

    def __init__(self) -> None:
        # Sorted by time of look-up, so the first one is due first.
        self._asked_s: dict[str, float] = {}
        self._ends: dict[str, tuple[float, Mapping[int, int]]] = {}

    def follow(self, topics: Collection[str]) -> None:
        """Set the topics that are consumed."""
        for topic in [topic for topic in self._asked_s if topic not in topics]:
            del self._asked_s[topic]
            self._ends.pop(topic, None)
        new = {topic: float("-inf") for topic in topics if topic not in self._asked_s}
        if new:
            self._asked_s = {**new, **self._asked_s}

    def due(self, now_s: float) -> str | None:
        """Return the topic to look up now, and count it as looked up; None if none is due."""
        for topic, asked_s in self._asked_s.items():
            if now_s - asked_s < INTERVAL_S:
                return None
            del self._asked_s[topic]
            self._asked_s[topic] = now_s
            return topic
        return None

    def note(self, topic: str, ends: Mapping[int, int], now_s: float) -> None:
        """Record the ends of the topic's partitions."""
        if topic in self._asked_s:
            self._ends[topic] = (now_s, ends)

    def lag(self, topic: str, reached: Mapping[int, int], now_s: float) -> int:
        """How many messages are at or above the offsets reached; -1 if unknown."""
        noted_s, ends = self._ends.get(topic, (float("-inf"), {}))
        if not reached or now_s - noted_s > VALID_S:
            return UNKNOWN
        return sum(max(0, ends.get(each, 0) - at) for each, at in reached.items())
