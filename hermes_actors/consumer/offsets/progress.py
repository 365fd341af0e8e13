"""Where a consumer starts in each partition, and what it commits. Also reports which of a node's
consumers could not commit.
"""

import logging
import random
from collections.abc import Awaitable, Callable

import trio
from msgspec.structs import replace

from hermes_actors.consumer.offsets.partition import PartitionOffsets
from hermes_actors.coordination.owned import Owned
from hermes_actors.log.base import EARLIEST, LATEST, Commit, Log, LogUnavailable
from hermes_actors.log.commits import CommitOwner, decode, encode
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.metadata.seek import Seek

_logger = logging.getLogger(__name__)

_LOOK_MAX_S = 10.0
INTERVAL_S = 60.0
"""Seconds between two log lines about failed commits."""
_NAMED_MAX = 3

REFRESH_S = 3_600.0
"""Unchanged positions are committed again after this time, because Kafka forgets them after 7 days.
"""

ASSERT_PAUSES_S = (3.0, 7.0)
"""Pauses before checking, after a start or a seek, whether a late commit of another owner has
overwritten ours: the log does not know which commit is newer. Each pause is lengthened by up to
half at random, so that thousands of subscriptions on a starting node do not check together.
"""


class TopicProgress:
    """The progress of one consumer group in all partitions that a consumer owns.

    A retransmission (`seek`) takes precedence over all commits made before it, also after a crash
    between the two, and if an earlier owner's commit arrives late.
    """

    def __init__(
        self,
        live: LiveSubscription,
        log: Log,
        log_topic: str,
        namespace: str,
        owned: Owned,
        skew_ms: int,
    ) -> None:
        """For this version of the subscription and these owned partitions. Nothing is committed
        while the lease is closed. Clocks differ by at most `skew_ms`.
        """
        self._lease = owned.lease
        self._log = log
        self._group = live.name.consumer_group(namespace)
        self._topic = log_topic
        self._seek = live.seek
        number = 0 if live.seek is None else live.seek.number
        self._ownership = CommitOwner(
            live.topic_incarnation, live.incarnation, owned.epoch, seek=number
        )
        self._skew_ms = skew_ms
        self._since_ms = max(0, int(live.subscription.created_at * 1_000) - skew_ms)
        creation = live.creation
        self._creation = creation if creation is not None and creation.dc == log.dc else None
        self._owned = owned.partitions
        self._committed: dict[int, Commit] = {}
        self._committed_s = float("-inf")
        # Partitions that a retransmission moved while we owned them: no foreign commit is newer.
        self._sought: set[int] = set()
        self._committing = trio.Lock()
        self._loading = trio.Lock()
        self.partitions: dict[int, PartitionOffsets] = {}
        self.cover: Callable[[], Awaitable[None]] | None = None
        """Waits for what must be durable before settled offsets are committed."""

    @property
    def awaited(self) -> list[int]:
        """The owned partitions that the log has not shown yet."""
        known = self.partitions.keys() | self._sought
        return [each for each in self._owned or () if each not in known]

    @property
    def is_whole(self) -> bool:
        """True when each owned partition is known; never for a consumer that is alone."""
        return self._owned is not None and not self.awaited

    def reached(self) -> dict[int, int]:
        """Return how much of each partition is settled; nothing while nothing is known. A partition
        that the log has not shown yet was added lately: nothing of it is settled.
        """
        known = {partition: offsets.reached for partition, offsets in self.partitions.items()}
        return dict.fromkeys(self.awaited, 0) | known if known else {}

    def go_to(self, seek: Seek | None) -> bool:
        """Drop the partitions that a new retransmission moves; `load` finds their new starts.

        True if it is new. Settling messages of the dropped partitions no longer has an effect.
        """
        if seek is None or seek.number <= self._ownership.seek:
            return False
        self._seek = seek
        self._ownership = replace(self._ownership, seek=seek.number)
        for partition in [p for p in self.partitions if seek.moves(self._log.dc, p)]:
            self.partitions.pop(partition).is_superseded = True
            self._sought.add(partition)
        return True

    async def load(self) -> bool:
        """Find the start of each owned partition that has none yet; True if there was one.

        The start is the commit of this incarnation, if no retransmission is newer, without the
        offsets that it lists as settled. Else the target of the retransmission. Else the
        partition's end at the subscription's creation, or, if unknown, the first record published
        since then minus the clock skew. Raises LogUnavailable, UnknownTopic.
        """
        async with self._loading:
            while True:
                seek = self._seek
                found = await self._find()
                if seek is self._seek:
                    break
            # Changed only here, so that a cancelled call has no effect.
            for partition, (offsets, commit) in found.items():
                self.partitions[partition] = offsets
                self._committed.pop(partition, None)
                if commit is not None:
                    self._committed[partition] = commit
            self._sought.difference_update(found)
            return bool(found)

    async def _find(self) -> dict[int, tuple[PartitionOffsets, Commit | None]]:
        """For each partition without a start: its start, and the commit that it comes from."""
        starts = await self._log.positions(self._topic, EARLIEST)
        missing = [
            partition
            for partition in sorted(starts)
            if partition not in self.partitions
            and (self._owned is None or partition in self._owned)
        ]
        if not missing:
            return {}
        commits = await self._log.committed(self._group, self._topic)
        ends = await self._log.positions(self._topic, LATEST)
        found: dict[int, tuple[PartitionOffsets, Commit | None]] = {}
        moved, fresh = [], []
        for partition in missing:
            commit = commits.get(partition)
            offsets = None if commit is None else self._from_commit(partition, commit)
            if offsets is not None:
                await self._cut_to(partition, offsets, ends.get(partition))
                found[partition] = offsets, commit
            elif self._is_moved(partition):
                moved.append(partition)
            elif (offsets := self._from_creation(partition)) is not None:
                await self._cut_to(partition, offsets, ends.get(partition), self._since_ms)
                found[partition] = offsets, None
            else:
                fresh.append(partition)
        positions = await self._targets(moved, starts) if moved else {}
        if fresh:
            since = await self._log.positions(self._topic, self._since_ms)
            positions.update((p, since.get(p, starts[p])) for p in fresh)
        found.update((p, (PartitionOffsets(at), None)) for p, at in positions.items())
        for partition, (offsets, _) in found.items():
            if self._seek is not None and self._is_moved(partition):
                offsets.seek = self._seek.number
        return found

    def _from_creation(self, partition: int) -> PartitionOffsets | None:
        """The partition's end when the subscription was created, as start; None if unknown."""
        creation = self._creation
        if creation is None or partition not in creation.ends:
            return None
        return PartitionOffsets(creation.ends[partition], (), creation.last_records.get(partition))

    async def _cut_to(
        self, partition: int, offsets: PartitionOffsets, end: int | None, since_ms: int = 0
    ) -> None:
        """Drop settled offsets that the log has lost since, so that they are not taken for records
        that it stores there now. Such records are not older than `since_ms`. `end` is the log's
        end; if it is None or not lower, nothing is cut.
        """
        reached = max(offsets.read_end, offsets.recovered_end)
        if end is not None and end < reached:
            last_read = offsets.trail.newest
            if last_read is not None and last_read.offset >= end:
                # Records below the end may be newer than what was read, too.
                since_ms = max(since_ms, last_read.timestamp_ms - self._skew_ms)
                since = await self._log.positions(self._topic, since_ms)
                end = min(end, since.get(partition, end))
            _logger.warning(
                "%s %s/%d: the log was cut; up to %d it was settled, and it is read from %d on",
                self._group,
                self._topic,
                partition,
                reached,
                min(end, offsets.read_end),
            )
            offsets.cut(end)

    def _is_moved(self, partition: int) -> bool:
        return self._seek is not None and self._seek.moves(self._log.dc, partition)

    async def _targets(self, partitions: list[int], starts: dict[int, int]) -> dict[int, int]:
        """The targets of the retransmission for these partitions, all of which it moves."""
        assert self._seek is not None, "no partition is moved without"
        body = self._seek.body
        asked = body.positions.get(self._log.dc)
        if asked is None:
            assert body.time_ms is not None, "nothing is moved without positions and time"
            asked = await self._log.positions(self._topic, body.time_ms)
        # A log that was lost and made again has new records below the offsets meant.
        since_ms = self._seek.number + self._skew_ms
        newer = await self._log.positions(self._topic, since_ms)
        targets = {}
        for partition in partitions:
            start = starts[partition]
            # A partition added later has nothing older than the retransmission.
            target = asked.get(partition, start)
            target = min(target, newer.get(partition, target))
            if target < start:
                _logger.warning(
                    "%s %s/%d: a retransmission asks for offset %d; the log begins at %d, and so "
                    "does the retransmission",
                    self._group,
                    self._topic,
                    partition,
                    target,
                    start,
                )
            targets[partition] = max(target, start)
        return targets

    async def commit(self, now_s: float) -> bool:
        """Commit what has changed since the last commit. True if there was a change and the lease
        allowed it.

        Raises LogUnavailable or UnknownTopic; then the next call commits it.
        """
        # One at a time: an older commit must not overwrite a newer one.
        async with self._committing:
            return await self._commit(now_s)

    def uncommitted(self) -> list[int]:
        """The partitions whose current progress is not committed."""
        return sorted(self._changed(is_refresh=False))

    def _changed(self, *, is_refresh: bool) -> dict[int, Commit]:
        commits: dict[int, Commit] = {}
        for partition, offsets in self.partitions.items():
            position = offsets.position
            metadata = encode(
                position,
                offsets.intervals(),
                self._ownership,
                last_read=offsets.trail.newest,
            )
            commit = Commit(position, metadata)
            if is_refresh or self._committed.get(partition) != commit:
                commits[partition] = commit
        return commits

    async def _commit(self, now_s: float) -> bool:
        is_refresh = now_s - self._committed_s >= REFRESH_S
        commits = self._changed(is_refresh=is_refresh)
        if commits and self.cover is not None:
            await self.cover()
        # Checked after all waiting: another node may own the partitions by now, and then only its
        # commits count.
        if not commits or not self._lease.is_open():
            return False
        await self._log.commit(self._group, self._topic, commits)
        self._committed.update(commits)
        if is_refresh:
            self._committed_s = now_s
        return True

    async def keep_committed(self, on_overwritten: Callable[[], None], rng: random.Random) -> None:
        """For some ten seconds, check whether the log still holds our last commits.

        Calls `on_overwritten` if it does not; the next commit then repeats them.
        """
        for pause_s in ASSERT_PAUSES_S:
            await trio.sleep(pause_s * (1.0 + rng.random() / 2))
            try:
                is_overwritten = await self._forget_overwritten()
            except LogUnavailable:
                continue
            if is_overwritten:
                on_overwritten()

    async def _forget_overwritten(self) -> bool:
        async with self._committing:
            held = await self._log.committed(self._group, self._topic)
            lost = [
                partition
                for partition, ours in self._committed.items()
                if partition in self.partitions and self._is_over(ours, held.get(partition))
            ]
            for partition in lost:
                _logger.warning(
                    "%s %s/%d: another consumer has overwritten our commit with %s; committing "
                    "again",
                    self._group,
                    self._topic,
                    partition,
                    held.get(partition),
                )
                del self._committed[partition]
            return bool(lost)

    def _is_over(self, ours: Commit, held: Commit | None) -> bool:
        if held is None:
            return True
        # A commit of ours that succeeded despite an error answer is fine. And a commit of a later
        # grant is not to be overwritten.
        owner = decode(held).ownership
        if owner is not None and self._is_later(owner):
            return False
        return held.position < ours.position or (held != ours and owner != self._ownership)

    def _is_later(self, owner: CommitOwner) -> bool:
        ours = self._ownership
        is_same_life = (owner.topic_incarnation, owner.incarnation) == (
            ours.topic_incarnation,
            ours.incarnation,
        )
        return is_same_life and owner.epoch > ours.epoch

    async def find_place(self, partition: int, read_end: int) -> int:
        """Where to read on in a partition that was read up to `read_end`: there, or lower if the
        log was truncated since. Raises LogUnavailable, UnknownTopic, OffsetOutOfRange.
        """
        log, topic, trail = self._log, self._topic, self.partitions[partition].trail
        with trio.move_on_after(_LOOK_MAX_S):
            start, end = await log.bounds(topic, partition)
            if read_end < start:
                return read_end
            return await trail.find_end(log, topic, partition, start, end, read_end, self._skew_ms)
        raise LogUnavailable("its end cannot be compared with what was read of it")

    def readable(self, span_max: int) -> dict[int, int]:
        """By partition, the next offset to read, if the unsettled span leaves room."""
        return {
            partition: offsets.read_end
            for partition, offsets in self.partitions.items()
            if offsets.span < span_max
        }

    @property
    def span(self) -> int:
        """The longest unsettled span of a partition."""
        return max((offsets.span for offsets in self.partitions.values()), default=0)

    def _from_commit(self, partition: int, commit: Commit) -> PartitionOffsets | None:
        """The start from a commit; None if it is of another incarnation, or a retransmission is
        newer.
        """
        progress = decode(commit)
        owner = progress.ownership
        if owner is None:
            if partition in self._sought:
                return None
            _logger.warning(
                "%s %s: continuing from a commit that no consumer of this broker made: position %d",
                self._group,
                self._topic,
                commit.position,
            )
        elif not self._is_ours(owner, partition):
            return None
        return PartitionOffsets(progress.position, progress.intervals, progress.last_read)

    def _is_ours(self, owner: CommitOwner, partition: int) -> bool:
        ours = self._ownership
        if (owner.incarnation, owner.topic_incarnation) != (
            ours.incarnation,
            ours.topic_incarnation,
        ):
            return False
        if owner.seek >= ours.seek:
            return True
        # The retransmission does not move partitions that it does not name.
        return self._seek is not None and not self._is_moved(partition)


class Uncommitted:
    """Logs the failed commits of all consumers of a node, in one line a minute.

    If a log is away, no consumer can commit, and a node may have thousands. A failure that concerns
    one subscription persists, and is named when the others have recovered.
    """

    def __init__(self) -> None:
        # By kind of error, so that an unavailable log does not hide a deleted topic. When the next
        # line is due; and, since the last line, who failed, when and why.
        self._next_s: dict[type[Exception], float] = {}
        self._failed: dict[type[Exception], dict[str, tuple[float, str]]] = {}

    def failed(self, subscription: str, error: Exception, now_s: float) -> None:
        """Note a failed commit. Takes monotonic time."""
        kind = type(error)
        failed = self._failed.setdefault(kind, {})
        # Keep the oldest failure first.
        failed.pop(subscription, None)
        failed[subscription] = (now_s, repr(error))
        if now_s < self._next_s.get(kind, float("-inf")):
            return
        self._next_s[kind] = now_s + INTERVAL_S
        since_s = now_s - INTERVAL_S
        told = [f"{name}: {why}" for name, (at_s, why) in failed.items() if at_s >= since_s]
        failed.clear()
        if len(told) == 1:
            _logger.warning("%s: not committed: %r", subscription, error)
            return
        more = len(told) - _NAMED_MAX
        _logger.warning(
            "not committed in the last minute: %d subscriptions: %s%s",
            len(told),
            "; ".join(told[:_NAMED_MAX]),
            f"; and {more} more" if more > 0 else "",
        )
