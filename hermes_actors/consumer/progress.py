"""Where a consumer starts in each partition, and what it commits: its own progress or nothing."""

import logging

import trio

from hermes_actors.consumer.offsets import Ownership, PartitionOffsets, decode, encode
from hermes_actors.log.base import Commit, Log

_logger = logging.getLogger(__name__)

SAFETY_MS = 5_000
"""How much before a subscription's creation it starts: clocks of nodes may differ by that."""

REFRESH_S = 3_600.0
"""Unchanged positions are committed again after this long: Kafka forgets them after 7 days."""


class TopicProgress:
    """The progress of one group in all partitions that a consumer owns."""

    def __init__(
        self,
        log: Log,
        group: str,
        topic: str,
        ownership: Ownership,
        *,
        created_at_ms: int,
        owned: tuple[int, ...] | None,
    ) -> None:
        """`owned` None: all partitions, also those that are added later."""
        self._log = log
        self._group = group
        self._topic = topic
        self._ownership = ownership
        self._created_at_ms = created_at_ms
        self._owned = owned
        self._committed: dict[int, Commit] = {}
        self._committed_s = float("-inf")
        self._lock = trio.Lock()
        self.partitions: dict[int, PartitionOffsets] = {}

    async def load(self) -> bool:
        """Find the start of each owned partition that is not known yet; True if there was one.

        A commit of this incarnation: from there, without what it says is settled. Else: what was
        published since the subscription's creation. Raises LogUnavailable, UnknownTopic.
        """
        starts = await self._log.start_positions(self._topic)
        missing = [
            partition
            for partition in sorted(starts)
            if partition not in self.partitions
            and (self._owned is None or partition in self._owned)
        ]
        if not missing:
            return False
        commits = await self._log.committed(self._group, self._topic)
        found = {p: self._from_commit(commits[p]) for p in missing if p in commits}
        fresh = [partition for partition in missing if found.get(partition) is None]
        if fresh:
            since_ms = max(0, self._created_at_ms - SAFETY_MS)
            positions = await self._log.position_at(self._topic, since_ms)
            found.update((p, PartitionOffsets(positions.get(p, starts[p]))) for p in fresh)
        # Only now: a call that was cancelled half-way has changed nothing.
        for partition in missing:
            offsets = found[partition]
            assert offsets is not None, "each missing partition has been found a start"
            self.partitions[partition] = offsets
            if partition not in fresh:
                self._committed[partition] = commits[partition]
        return True

    async def commit(self, now_s: float) -> bool:
        """Commit what has changed since the last commit; True if there was anything.

        Raises LogUnavailable or UnknownTopic; then the next call commits it.
        """
        # One after the other: an older commit must not land on top of a newer one.
        async with self._lock:
            return await self._commit(now_s)

    def uncommitted(self) -> list[int]:
        """The partitions whose progress has not been committed as it is now."""
        return sorted(self._changed(is_refresh=False))

    def _changed(self, *, is_refresh: bool) -> dict[int, Commit]:
        commits: dict[int, Commit] = {}
        for partition, offsets in self.partitions.items():
            position = offsets.position
            metadata = encode(position, offsets.intervals(), self._ownership)
            commit = Commit(position, metadata)
            if is_refresh or self._committed.get(partition) != commit:
                commits[partition] = commit
        return commits

    async def _commit(self, now_s: float) -> bool:
        is_refresh = now_s - self._committed_s >= REFRESH_S
        commits = self._changed(is_refresh=is_refresh)
        if not commits:
            return False
        await self._log.commit(self._group, self._topic, commits)
        self._committed.update(commits)
        if is_refresh:
            self._committed_s = now_s
        return True

    def restart(self, partition: int, position: int) -> None:
        """Begin anew in a partition whose log has been cut below what was read."""
        self.partitions[partition] = PartitionOffsets(position)

    def readable(self, span_max: int) -> dict[int, int]:
        """Partition → next offset to read, for those whose unsettled span leaves room."""
        return {
            partition: offsets.read_end
            for partition, offsets in self.partitions.items()
            if offsets.span < span_max
        }

    def _from_commit(self, commit: Commit) -> PartitionOffsets | None:
        """The start that a commit gives, or None when it is another incarnation's."""
        progress = decode(commit)
        owner = progress.ownership
        if owner is None:
            _logger.warning(
                "%s %s: a commit that no consumer of ours made counts: position %d",
                self._group,
                self._topic,
                commit.position,
            )
        elif not self._is_ours(owner):
            return None
        return PartitionOffsets(progress.position, progress.intervals)

    def _is_ours(self, owner: Ownership) -> bool:
        return (
            owner.incarnation == self._ownership.incarnation
            and owner.topic_incarnation == self._ownership.topic_incarnation
            and owner.seek >= self._ownership.seek
        )
