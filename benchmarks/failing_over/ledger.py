"""Derives from arrivals alone who delivered what when: gaps, moves, missing and duplicate messages.

A *lane* is one subscription's messages of one key. They are in one partition, so one node delivers
them at a time. Nothing here asks the product about owners.
"""

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from delivering.sink import Arrivals
from hermes_chaos.live.open_loop import Sent

ANYBODY = -1
"""The sender if the sink could not determine it."""
NOBODY = -2


class Lane(NamedTuple):
    """Messages that one node delivers at a time."""

    subscriber: str
    key: str


class Came(NamedTuple):
    """A delivery. `at_s` is a time of time.perf_counter()."""

    at_s: float
    sender: int
    number: int


class Ledger:
    """All published messages and their deliveries. Times are those of time.perf_counter().

    `sent` grows while it is read: message n is at index n-1. `shift_s` is how far its times are
    ahead. `topics` has the topic of each subscriber.
    """

    def __init__(self, topics: Mapping[str, str], sent: Sequence[Sent], shift_s: float) -> None:
        self.topics = topics
        self._sent = sent
        self._shift_s = shift_s
        self._numbers: dict[str, Counter[int]] = {each: Counter() for each in topics}
        self.lanes: dict[Lane, list[Came]] = defaultdict(list)
        self.duplicates = 0

    def take(self, arrivals: Mapping[str, Arrivals]) -> None:
        """Add the sink's arrivals since its last call."""
        for subscriber, noted in arrivals.items():
            numbers = self._numbers[subscriber]
            for number, at_s, sender in zip(
                noted.numbers, noted.came_s, noted.senders, strict=True
            ):
                if not 0 < number <= len(self._sent):
                    # From the check whether the topic accepts messages.
                    continue
                numbers[number] += 1
                self.duplicates += numbers[number] > 1
                lane = Lane(subscriber, self._sent[number - 1].key)
                self.lanes[lane].append(Came(at_s, sender, number))

    def due_s(self, number: int) -> float:
        """When a message was due to be published."""
        return self._sent[number - 1].due_s - self._shift_s

    def owners(self, at_s: float) -> dict[Lane, int]:
        """The last deliverer on each lane."""
        found = {}
        for lane, came in self.lanes.items():
            if at := _after(came, at_s):
                found[lane] = came[at - 1].sender
        return found

    def lanes_of(self, sender: int, at_s: float) -> list[Lane]:
        """The lanes on which that sender delivered last."""
        return [lane for lane, owner in self.owners(at_s).items() if owner == sender]

    def taken_over_s(self, lanes: Iterable[Lane], lost: int, at_s: float) -> dict[Lane, float]:
        """By lane, how long after that moment another sender first delivered; only lanes where one
        did.
        """
        found = {}
        for lane in lanes:
            for each in self._within(lane, at_s):
                # If a connection was gone before it was looked up, anybody may have sent it.
                if each.sender != lost and (each.sender != ANYBODY or lost == NOBODY):
                    found[lane] = each.at_s - at_s
                    break
        return found

    def resumed_s(self, lanes: Iterable[Lane], at_s: float) -> dict[Lane, float]:
        """By lane, how long after that moment it was first delivered again; only lanes
        that were.
        """
        return self.taken_over_s(lanes, NOBODY, at_s)

    def times_from(self, sender: int, from_s: float, until_s: float = math.inf) -> list[float]:
        """When a node delivered in that time, ascending."""
        return sorted(
            each.at_s
            for lane in self.lanes
            for each in self._within(lane, from_s, until_s)
            if each.sender == sender
        )

    def waited_s(self, lanes: Iterable[Lane], from_s: float, until_s: float) -> dict[Lane, float]:
        """By lane, the longest wait of a message that was due in that time and came."""
        found: dict[Lane, float] = {}
        for lane in lanes:
            first: dict[int, float] = {}
            for each in self._within(lane, from_s):
                first.setdefault(each.number, each.at_s)
            waits = [
                at_s - due_s
                for number, at_s in first.items()
                if from_s <= (due_s := self.due_s(number)) < until_s
            ]
            if waits:
                found[lane] = max(waits)
        return found

    def silent_s(self, from_s: float, until_s: float) -> float:
        """The longest time without any delivery."""
        times = [each.at_s for lane in self.lanes for each in self._within(lane, from_s, until_s)]
        moments = [from_s, *sorted(times), until_s]
        return max(later - earlier for earlier, later in pairwise(moments))

    def moves(self, from_s: float, until_s: float) -> dict[Lane, int]:
        """By lane, how often the known sender changed."""
        found = {}
        before = self.owners(from_s)
        for lane in self.lanes:
            senders = [before[lane]] if lane in before else []
            senders += [each.sender for each in self._within(lane, from_s, until_s)]
            senders = [each for each in senders if each != ANYBODY]
            found[lane] = sum(one != other for one, other in pairwise(senders))
        return found

    def missing(self) -> list[tuple[str, int]]:
        """The accepted messages that have not come to a subscriber."""
        accepted: dict[str, list[int]] = defaultdict(list)
        for each in self._sent:
            if each.is_accepted:
                accepted[each.topic].append(each.number)
        return [
            (subscriber, number)
            for subscriber, topic in self.topics.items()
            for number in accepted[topic]
            if number not in self._numbers[subscriber]
        ]

    def _within(self, lane: Lane, from_s: float, until_s: float = math.inf) -> Sequence[Came]:
        came = self.lanes[lane]
        return came[_after(came, from_s) : _after(came, until_s)]


def _after(came: Sequence[Came], at_s: float) -> int:
    """The index of the first delivery after that moment; deliveries are in order of arrival."""
    return bisect_right(came, at_s, key=lambda each: each.at_s)
