"""Where a consumer starts in each partition, and what it commits: its own progress or nothing; and
which of a node's consumers could not commit.
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
"""Between two lines of the log that tell of commits which failed."""
_NAMED_MAX = 3

REFRESH_S = 3_600.0
"""Unchanged positions are committed again after this long: Kafka forgets them after 7 days."""

ASSERT_PAUSES_S = (3.0, 7.0)
"""Between the looks, after a start or a seek, at whether a late commit of somebody else has landed
on top of ours: a log does not tell whose commit is the newer one. Each is made longer by up to
half, so that the thousands that a node begins with do not look together.
"""


class TopicProgress:
    """The progress of one group in all partitions that a consumer owns.

    A retransmission (`seek`) is above all commits that were made before it: also after a crash
    between the two, and when an earlier owner's commit lands late.
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
        """Of a subscription as it is now, of what is owned: nothing is committed while its lease is
        not open. Clocks differ by `skew_ms` at most.
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
        # Partitions that a retransmission has moved while we had them: no commit of anybody else
        # is newer than it.
        self._sought: set[int] = set()
        self._committing = trio.Lock()
        self._loading = trio.Lock()
        self.partitions: dict[int, PartitionOffsets] = {}
        self.cover: Callable[[], Awaitable[None]] | None = None
        """Waits for what is to be written down before what is settled is committed."""

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
        """Leave the partitions that a new retransmission moves; `load` finds their new starts.

        True if it is new. What is settled of their messages from now on changes nothing.
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
        """Find the start of each owned partition that is not known yet; True if there was one.

        A commit of this incarnation that no retransmission has overtaken: from there, without what
        it says is settled. Else: where the retransmission says, or where the partition ended at the
        subscription's creation; where that is not known, what was published since, and up to the
        skew of clocks before. Raises LogUnavailable, UnknownTopic.
        """
        async with self._loading:
            while True:
                seek = self._seek
                found = await self._find()
                if seek is self._seek:
                    break
            # Only now: a call that was cancelled half-way has changed nothing.
            for partition, (offsets, commit) in found.items():
                self.partitions[partition] = offsets
                self._committed.pop(partition, None)
                if commit is not None:
                    self._committed[partition] = commit
            self._sought.difference_update(found)
            return bool(found)

    async def _find(self) -> dict[int, tuple[PartitionOffsets, Commit | None]]:
        """Return partition → its start, and the commit that says so, for those that are not known
        yet.
        """
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
        """The start behind what the partition held when the subscription was created; None where
        that is not known.
        """
        creation = self._creation
        if creation is None or partition not in creation.ends:
            return None
        return PartitionOffsets(creation.ends[partition], (), creation.last_records.get(partition))

    async def _cut_to(
        self, partition: int, offsets: PartitionOffsets, end: int | None, since_ms: int = 0
    ) -> None:
        """Forget what a commit or the creation says of offsets that the log has lost since, so that
        it is not said of what the log stores there, nothing of which is older than `since_ms`.
        `end` is the log's; None, or no lower one: nothing is cut.
        """
        reached = max(offsets.read_end, offsets.recovered_end)
        if end is not None and end < reached:
            last_read = offsets.trail.newest
            if last_read is not None and last_read.offset >= end:
                # What lies below the end now may have come after what was read, too.
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
        """Return where the retransmission takes these partitions, which are some that it moves."""
        assert self._seek is not None, "no partition is moved without"
        body = self._seek.body
        asked = body.positions.get(self._log.dc)
        if asked is None:
            assert body.time_ms is not None, "nothing is moved without positions and time"
            asked = await self._log.positions(self._topic, body.time_ms)
        targets = {}
        for partition in partitions:
            start = starts[partition]
            # A partition that was added only now holds nothing older than the retransmission.
            target = asked.get(partition, start)
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
        """Commit what has changed since the last commit; True if there was anything and the lease
        allowed it.

        Raises LogUnavailable or UnknownTopic; then the next call commits it.
        """
        # One after the other: an older commit must not land on top of a newer one.
        async with self._committing:
            return await self._commit(now_s)

    def uncommitted(self) -> list[int]:
        """The partitions whose progress has not been committed as it is now."""
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
        # Looked at here, after all waiting: somebody else may own the partitions by now, and then
        # it is his commits that count.
        if not commits or not self._lease.is_open():
            return False
        await self._log.commit(self._group, self._topic, commits)
        self._committed.update(commits)
        if is_refresh:
            self._committed_s = now_s
        return True

    async def keep_committed(self, on_overwritten: Callable[[], None], rng: random.Random) -> None:
        """For some ten seconds look whether the log still holds what was committed last.

        `on_overwritten` is called when it does not; the next commit then says it again.
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
                    "%s %s/%d: somebody else has committed %s over ours; committing again",
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
        # One of ours that went through although its answer said otherwise is as good; and over one
        # of a later grant nobody commits any more whose grant is over.
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
        """Where to go on in a partition that was read up to `read_end`: there, or before that where
        the log has lost its end since. Raises LogUnavailable, UnknownTopic, OffsetOutOfRange.
        """
        log, topic, trail = self._log, self._topic, self.partitions[partition].trail
        with trio.move_on_after(_LOOK_MAX_S):
            start, end = await log.bounds(topic, partition)
            if read_end < start:
                return read_end
            return await trail.find_end(log, topic, partition, start, end, read_end, self._skew_ms)
        raise LogUnavailable("its end cannot be compared with what was read of it")

    def readable(self, span_max: int) -> dict[int, int]:
        """Partition → next offset to read, for those whose unsettled span leaves room."""
        return {
            partition: offsets.read_end
            for partition, offsets in self.partitions.items()
            if offsets.span < span_max
        }

    @property
    def span(self) -> int:
        """The unsettled span of the partition where it is longest."""
        return max((offsets.span for offsets in self.partitions.values()), default=0)

    def _from_commit(self, partition: int, commit: Commit) -> PartitionOffsets | None:
        """The start that a commit gives; None when it is another incarnation's, or a retransmission
        has overtaken it.
        """
        progress = decode(commit)
        owner = progress.ownership
        if owner is None:
            if partition in self._sought:
                return None
            _logger.warning(
                "%s %s: a commit that no consumer of ours made counts: position %d",
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
        # The retransmission leaves alone the partitions that it does not name.
        return self._seek is not None and not self._is_moved(partition)


class Uncommitted:
    """Tells of the failed commits of all consumers of a node: one line a minute for all together.

    When a log is away none can commit, and a node may have thousands. What fails for a reason of
    its own goes on failing, and is named when the others are well again.
    """

    def __init__(self) -> None:
        # By kind; few, and a log that is away is no topic that is gone, and hides none. When the
        # next line is due; and since the last one who failed, when last and why.
        self._next_s: dict[type[Exception], float] = {}
        self._failed: dict[type[Exception], dict[str, tuple[float, str]]] = {}

    def failed(self, subscription: str, error: Exception, now_s: float) -> None:
        """Note a failed commit; the next one will say all that it would have said. Monotonic
        time.
        """
        kind = type(error)
        failed = self._failed.setdefault(kind, {})
        # The longest ago comes first.
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
