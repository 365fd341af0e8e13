"""Measures how far consumers are behind the ends of their topics; the ends are looked up in turn.
Pure.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType

from msgspec import Struct

INTERVAL_S = 2.0
"""Minimum interval between two look-ups of a topic's end; ten look-ups a second at most."""

VALID_S = 60.0
"""How long an answer is valid; after that the lag is unknown."""

UNKNOWN = -1
_NONE: Mapping[int, int] = MappingProxyType({})


class Reached(Struct, frozen=True):
    """How far a subscription is in the partitions that a node owns. `settled`: for each the offset
    whose distance from the end is what is not settled. `oldest_ms`: when the oldest message that
    is not settled was stored, None where there is none.
    """

    log_topic: str = ""
    settled: Mapping[int, int] = {}
    oldest_ms: int | None = None

    def oldest_age_ms(self, now_ms: int) -> int:
        """How long ago that was; 0 where there is none."""
        return 0 if self.oldest_ms is None else max(0, now_ms - self.oldest_ms)


class Ends:
    """The ends of the topics that are consumed here, looked up at a limited rate."""

    def __init__(self) -> None:
        # Sorted by time of look-up, so the first one is due first.
        self._asked_s: dict[str, float] = {}
        self._ends: dict[str, tuple[float, Mapping[int, int], Mapping[int, int]]] = {}

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

    def note(
        self, topic: str, ends: Mapping[int, int], now_s: float, starts: Mapping[int, int] = _NONE
    ) -> None:
        """Record the ends of the topic's partitions, and starts that positions may lie below."""
        if topic in self._asked_s:
            self._ends[topic] = (now_s, ends, starts)

    def added(self, topic: str, since: int | None) -> list[int]:
        """The topic's partitions from `since` on; none for None."""
        _, ends, _ = self._ends.get(topic, (0.0, {}, {}))
        return [] if since is None else sorted(each for each in ends if each >= since)

    def lag(self, reached: Reached, now_s: float) -> int:
        """How many messages are at or above the offsets reached; -1 if unknown."""
        noted_s, ends, starts = self._ends.get(reached.log_topic, (float("-inf"), {}, {}))
        settled = reached.settled
        # A partition whose end is not known was added just now.
        if not settled or now_s - noted_s > VALID_S or not settled.keys() <= ends.keys():
            return UNKNOWN
        return sum(
            max(0, ends[each] - max(at, starts.get(each, 0))) for each, at in settled.items()
        )
