"""Counts the open dead letters of this node's subscriptions, from the dead-letter topics alone."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile

import trio

from hermes_actors.actors.supervisor import run_until
from hermes_actors.log.base import EARLIEST, LATEST, Log, LogUnavailable, UnknownTopic
from hermes_actors.log.ranges import read_forwards
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.dead_letter import Mark, UndecodableLetter, dlq_topic, read_entry
from hermes_actors.model.partitioner import partition_of
from hermes_actors.model.record import StoredRecord

RECORDS_MAX = 20_000
"""How many records back a partition's first read starts. Older letters count as closed."""

OPEN_MAX = 50_000
"""Maximum number of open letters tracked per partition. Beyond it the oldest are forgotten."""

UNKNOWN = -1

_LOOK_INTERVAL_S = 2.0
_LOOK_INTERVAL_OF_EACH_S = 0.2
"""With many topics the interval grows, so that the log gets at most ten requests a second."""
_ANSWER_TIMEOUT_S = 5.0
_IN_A_LOOK = 2_000
"""Maximum number of records read of one partition before the next one's turn."""


class OpenFold:
    """The open letters of one partition, in log order. Pure."""

    def __init__(self, position: int) -> None:
        self.position = position
        # By subscription and id: its incarnation, when it was given up, and the record's offset.
        self._open: dict[tuple[bytes | None, str], tuple[int, int, int]] = {}
        self.counts: Counter[tuple[bytes | None, int]] = Counter()
        """The number of open letters of each incarnation of a subscription."""

    def take(self, record: StoredRecord) -> None:
        """Fold the next record."""
        self.position = record.offset + 1
        try:
            entry = read_entry(record)
        except UndecodableLetter:
            return
        if isinstance(entry, Mark):
            for letter_id, up_to_ms in entry.closings():
                held = self._open.get((record.key, letter_id))
                if held is not None and held[1] <= up_to_ms:
                    self._remove((record.key, letter_id))
            return
        place = record.key, entry.id
        self._remove(place)
        self._open[place] = entry.incarnation, entry.at_ms, record.offset
        self.counts[record.key, entry.incarnation] += 1
        if len(self._open) > OPEN_MAX:
            self._remove(next(iter(self._open)))

    def expire_below(self, start: int) -> None:
        """Forget letters below this offset: the log no longer has them."""
        self.position = max(self.position, start)
        gone = takewhile(lambda place: self._open[place][2] < start, self._open)
        for place in list(gone):
            self._remove(place)

    def _remove(self, place: tuple[bytes | None, str]) -> None:
        held = self._open.pop(place, None)
        if held is not None:
            self.counts[place[0], held[0]] -= 1


class OpenCounts:
    """Follows the dead-letter topics of the subscriptions that `followed` returns."""

    def __init__(
        self, log: Log, followed: Callable[[], Iterable[LiveSubscription]], namespace: str = ""
    ) -> None:
        self._log = log
        self._followed = followed
        self._namespace = namespace
        # The number of partitions of each topic; 0 if the topic does not exist.
        self._partitions: dict[str, int] = {}
        self._folds: dict[tuple[str, int], OpenFold] = {}
        self._behind: set[tuple[str, int]] = set()

    def of(self, live: LiveSubscription) -> int:
        """The number of open letters; UNKNOWN until their partition has been read to its end."""
        topic, key = dlq_topic(live.name.topic.group, self._namespace), str(live.name).encode()
        partitions = self._partitions.get(topic)
        if not partitions:
            return UNKNOWN if partitions is None else 0
        place = topic, partition_of(key, partitions)
        fold = self._folds.get(place)
        if fold is None or place in self._behind:
            return UNKNOWN
        return fold.counts[key, live.incarnation]

    async def run(self, stop: trio.Event) -> None:
        """Follow the topics until `stop` is set."""
        await run_until(stop, self._follow)

    async def _follow(self) -> None:
        while True:
            topics = await self._look()
            rest_s = max(_LOOK_INTERVAL_S, _LOOK_INTERVAL_OF_EACH_S * topics)
            await trio.sleep(1.0 if self._behind else rest_s)

    async def _look(self) -> int:
        """Read on in all topics. Return how many there are."""
        wanted: defaultdict[str, set[bytes]] = defaultdict(set)
        for live in self._followed():
            wanted[dlq_topic(live.name.topic.group, self._namespace)].add(str(live.name).encode())
        self._partitions = {each: n for each, n in self._partitions.items() if each in wanted}
        seen: set[tuple[str, int]] = set()
        for topic, keys in sorted(wanted.items()):
            try:
                with trio.move_on_after(_ANSWER_TIMEOUT_S):
                    await self._look_at(topic, keys)
            except UnknownTopic:
                self._partitions[topic] = 0
            except LogUnavailable:
                # The last known counts stay until the log answers again.
                pass
            if partitions := self._partitions.get(topic, 0):
                seen |= {(topic, partition_of(key, partitions)) for key in keys}
        self._folds = {place: fold for place, fold in self._folds.items() if place in seen}
        self._behind &= seen
        return len(wanted)

    async def _look_at(self, topic: str, keys: set[bytes]) -> None:
        """Read on in the partitions that hold these subscriptions' letters."""
        ends = await self._log.positions(topic, LATEST)
        starts = await self._log.positions(topic, EARLIEST)
        self._partitions[topic] = len(ends)
        for partition in sorted({partition_of(key, len(ends)) for key in keys}):
            place, end = (topic, partition), ends[partition]
            start = starts.get(partition, 0)
            fold = self._folds.get(place)
            if fold is None or fold.position > end:
                # First read here, or the log was truncated.
                fold = self._folds[place] = OpenFold(max(start, end - RECORDS_MAX))
            self._behind.add(place)
            fold.expire_below(start)

            def take(batch: Sequence[StoredRecord], fold: OpenFold = fold) -> bool:
                for record in batch:
                    fold.take(record)
                return True

            stop = min(end, fold.position + _IN_A_LOOK)
            await read_forwards(self._log, topic, partition, fold.position, stop, take)
            # Aborted records leave holes at the end of a range.
            fold.position = max(fold.position, stop)
            if stop == end:
                self._behind.discard(place)
