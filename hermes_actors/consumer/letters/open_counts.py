"""How many dead letters of this node's subscriptions are open: given up, and neither delivered by a
re-drive nor expired. Read from the dead-letter topics alone, so a restart or a new owner knows it.
"""

from collections.abc import Callable, Iterable, Sequence

import trio

from hermes_actors.actors.supervisor import run_until
from hermes_actors.log.base import Log, LogUnavailable, UnknownTopic
from hermes_actors.log.ranges import read_forwards
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.dead_letter import Letter, UndecodableLetter, dlq_topic, read_entry
from hermes_actors.model.partitioner import partition_of
from hermes_actors.model.record import StoredRecord

RECORDS_MAX = 20_000
"""How far back the first look at a partition goes; what is older counts as settled."""

OPEN_MAX = 50_000
"""The most open letters of one partition that are known one by one; the oldest are forgotten."""

UNKNOWN = -1

_LOOK_INTERVAL_S = 2.0
_LOOK_INTERVAL_OF_EACH_S = 0.2
"""Of many topics the looks are rarer, so that the log is asked for ten positions a second."""
_ANSWER_TIMEOUT_S = 5.0
_IN_A_LOOK = 2_000
"""Records of one partition that are read before the other partitions have their turn."""


class OpenFold:
    """The open letters of one partition, told from the oldest record to the newest. Pure."""

    def __init__(self, position: int) -> None:
        self.position = position
        self._size = 0
        # For each life of a subscription the letters' ids, oldest record first, with the time of
        # giving up and the record's offset.
        self._open: dict[tuple[str, int], dict[str, tuple[int, int]]] = {}

    def take(self, record: StoredRecord) -> None:
        """Take in the next record."""
        self.position = record.offset + 1
        try:
            entry = read_entry(record)
        except UndecodableLetter:
            return
        if isinstance(entry, Letter):
            letters = self._open.setdefault((entry.subscription, entry.incarnation), {})
            # The last one of an id decides, and stands where its record does.
            self._size -= letters.pop(entry.id, None) is not None
            letters[entry.id] = entry.at_ms, record.offset
            self._size += 1
            if self._size > OPEN_MAX:
                self._forget_oldest()
            return
        name = (record.key or b"").decode("utf-8", "replace")
        for letter_id, up_to_ms in entry.closings():
            letters = self._open.get((name, _incarnation(letter_id)), {})
            if letter_id in letters and letters[letter_id][0] <= up_to_ms:
                del letters[letter_id]
                self._size -= 1

    def expire_below(self, start: int) -> None:
        """The log holds nothing below this offset any more."""
        self.position = max(self.position, start)
        for life, letters in list(self._open.items()):
            gone = []
            for letter_id, (_, offset) in letters.items():
                if offset >= start:
                    break
                gone.append(letter_id)
            for letter_id in gone:
                del letters[letter_id]
            self._size -= len(gone)
            if not letters:
                del self._open[life]

    def count(self, subscription: str, incarnation: int) -> int:
        """How many letters of this life of a subscription are open."""
        return len(self._open.get((subscription, incarnation), ()))

    def _forget_oldest(self) -> None:
        life = min(
            (life for life, letters in self._open.items() if letters),
            key=lambda each: next(iter(self._open[each].values()))[1],
        )
        letters = self._open[life]
        del letters[next(iter(letters))]
        self._size -= 1


def _incarnation(letter_id: str) -> int:
    parts = letter_id.rsplit(":", 3)
    return int(parts[1]) if len(parts) == 4 and parts[1].isdecimal() else 0


class OpenCounts:
    """Follows the dead-letter topics of the subscriptions that `followed` gives."""

    def __init__(
        self, log: Log, followed: Callable[[], Iterable[LiveSubscription]], namespace: str = ""
    ) -> None:
        self._log = log
        self._followed = followed
        self._namespace = namespace
        self._partitions: dict[str, int] = {}
        """For each topic that was looked at how many partitions it has; 0: there is no such."""
        self._folds: dict[tuple[str, int], OpenFold] = {}
        self._behind: set[tuple[str, int]] = set()

    def of(self, live: LiveSubscription) -> int:
        """How many are open; -1 until its partition has been read to its end."""
        topic = dlq_topic(live.name.topic.group, self._namespace)
        partitions = self._partitions.get(topic)
        if not partitions:
            return UNKNOWN if partitions is None else 0
        place = topic, partition_of(str(live.name).encode(), partitions)
        fold = self._folds.get(place)
        if fold is None or place in self._behind:
            return UNKNOWN
        return fold.count(str(live.name), live.incarnation)

    async def run(self, stop: trio.Event) -> None:
        """Follow the topics until asked to stop."""
        await run_until(stop, self._follow)

    async def _follow(self) -> None:
        while True:
            topics = await self._look()
            # What is not read to its end goes on soon, in turns with what others do.
            rest_s = max(_LOOK_INTERVAL_S, _LOOK_INTERVAL_OF_EACH_S * topics)
            await trio.sleep(1.0 if self._behind else rest_s)

    async def _look(self) -> int:
        """How many topics were looked at."""
        wanted: dict[str, set[bytes]] = {}
        for live in self._followed():
            topic = dlq_topic(live.name.topic.group, self._namespace)
            wanted.setdefault(topic, set()).add(str(live.name).encode())
        self._drop(wanted)
        for topic, keys in sorted(wanted.items()):
            try:
                with trio.move_on_after(_ANSWER_TIMEOUT_S):
                    await self._look_at(topic, keys)
            except UnknownTopic:
                self._partitions[topic] = 0
            except LogUnavailable:
                # What was known stays so until the log answers again.
                continue
        return len(wanted)

    async def _look_at(self, topic: str, keys: set[bytes]) -> None:
        """Look at the partitions where these keys' letters lie. Raises LogUnavailable,
        UnknownTopic.
        """
        ends = await self._log.end_positions(topic)
        starts = await self._log.start_positions(topic)
        self._partitions[topic] = len(ends)
        for partition in sorted({partition_of(key, len(ends)) for key in keys}):
            place, end = (topic, partition), ends[partition]
            start = starts.get(partition, 0)
            fold = self._folds.get(place)
            if fold is None or fold.position > end:
                # New here, or the log has lost its end.
                fold = self._folds[place] = OpenFold(max(start, end - RECORDS_MAX))
            self._behind.add(place)
            fold.expire_below(start)

            def take(batch: Sequence[StoredRecord], fold: OpenFold = fold) -> bool:
                for record in batch:
                    fold.take(record)
                return True

            stop = min(end, fold.position + _IN_A_LOOK)
            await read_forwards(self._log, topic, partition, fold.position, stop, take)
            # Compaction and aborted records leave holes at the end of a range.
            fold.position = max(fold.position, stop)
            if stop == end:
                self._behind.discard(place)

    def _drop(self, wanted: dict[str, set[bytes]]) -> None:
        """Forget what no subscription needs any more."""
        for topic in [topic for topic in self._partitions if topic not in wanted]:
            del self._partitions[topic]
        needed = {
            (topic, partition_of(key, count))
            for topic, keys in wanted.items()
            if (count := self._partitions.get(topic, 0))
            for key in keys
        }
        for place in [place for place in self._folds if place not in needed]:
            del self._folds[place]
            self._behind.discard(place)
