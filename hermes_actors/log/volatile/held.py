"""What a node holds in memory for the consumers of its datacentre, and what they ask it."""

from collections.abc import Mapping, Sequence

import trio
from msgspec import Struct

from hermes_actors.log.base import (
    Commit,
    LogUnavailable,
    Outcome,
    RefusedRecord,
    StoredRun,
    UnavailableRecord,
)
from hermes_actors.log.volatile.ring import Ring, cost_of
from hermes_actors.model.record import Record, StoredRecord

_UNKNOWN_S = 0.2


class MemoryPolicy(Struct, frozen=True):
    """How a topic uses a node's memory. `waits`: publishers wait for room, which `groups`, the
    consumer groups of the active subscriptions, make.
    """

    bytes_max: int
    waits: bool
    groups: tuple[str, ...]


class Asked(Struct, frozen=True):
    """What a consumer or management asks a holder about a topic: to store a group's commit, or to
    read up to `records_max` records from `position`, waiting `wait_ms` for the first.
    """

    topic: str
    group: str = ""
    commit: Commit | None = None
    time_ms: int = 0
    position: int = 0
    records_max: int = 0
    bytes_max: int = 0
    wait_ms: int = 0


class Told(Struct, frozen=True):
    """The answer: the bounds, the offset at `time_ms`, the group's commit, and the records."""

    start: int
    end: int
    at_time: int
    commit: Commit | None = None
    records: list[StoredRecord] = []


class Held:
    """The messages that this node holds, in partition number `partition` of each topic, None while
    it has none. `dropped` counts messages that made room for newer ones before each subscription
    had settled them. A publish waits up to `wait_s` for room.
    """

    def __init__(self, dc: str, wait_s: float) -> None:
        self.partition: int | None = None
        self.dropped = 0
        self._base = 0
        self._dc = dc
        self._wait_s = wait_s
        self._policies: Mapping[str, MemoryPolicy] = {}
        self._rings: dict[str, Ring] = {}

    def begin(self, partition: int | None, base: int = 0) -> int:
        """Hold this partition of each topic from now on, from offset `base`; None: no more. Returns
        how many messages are lost.
        """
        lost, policies = self.undelivered, self._policies
        self.adopt({})
        self.partition, self._base, self._policies = partition, base, policies
        return lost

    def adopt(self, policies: Mapping[str, MemoryPolicy]) -> None:
        """Hold the messages of these topics, by log topic, and forget those of others."""
        rings, self._policies = self._rings, policies
        self._rings = {topic: rings[topic] for topic in rings if topic in policies}
        for topic, ring in rings.items():
            if topic in policies:
                # A share is smaller once there are more topics.
                self._make_room(ring, policies[topic], 0)
            ring.changed.unpark_all()

    def number_for(self, topic: str) -> int | None:
        """The number of its partition of this topic; None if it cannot store any messages now."""
        return self.partition if topic in self._policies else None

    @property
    def size_bytes(self) -> int:
        """The memory that all messages take, about."""
        return sum(ring.size_bytes for ring in self._rings.values())

    @property
    def undelivered(self) -> int:
        """How many messages a subscription has not settled."""
        rings, policies = self._rings, self._policies
        return sum(rings[each].end - rings[each].floor(policies[each].groups) for each in rings)

    async def append(self, topic: str, batch: Sequence[Record]) -> Sequence[Outcome]:
        """As `Log.append`, to this node's partition. Never raises."""
        size_bytes = sum(map(cost_of, batch))
        with trio.move_on_after(self._wait_s):
            while (policy := self._policies.get(topic)) and self.partition is not None:
                ring = self._ring(topic)
                if self._make_room(ring, policy, size_bytes):
                    first, origin = ring.end, f"{self._dc}:{topic}"
                    for record in batch:
                        ring.add(self.partition, record, origin)
                    ring.changed.unpark_all()
                    await trio.lowlevel.cancel_shielded_checkpoint()
                    return StoredRun(first, len(batch))
                await ring.changed.park()
            await trio.lowlevel.checkpoint()
            return [RefusedRecord("this node has no such topic in memory") for _ in batch]
        full = "the topic's memory is full of messages that subscriptions have not settled"
        return [UnavailableRecord(full) for _ in batch]

    async def answer(self, asked: Asked) -> Told:
        """Answer a consumer or management. Raises LogUnavailable."""
        await trio.lowlevel.checkpoint()
        if self.partition is None:
            raise LogUnavailable("the node holds no messages")
        ring = self._ring(asked.topic)
        if asked.commit is not None:
            ring.commits[asked.group] = asked.commit
            ring.changed.unpark_all()
        if asked.records_max:
            with trio.move_on_after(asked.wait_ms / 1_000):
                while asked.position == ring.end and self._rings.get(asked.topic) is ring:
                    await ring.changed.park()
                if asked.topic not in self._rings:
                    # This node does not know the topic yet, or no longer.
                    await trio.sleep(_UNKNOWN_S)
        return Told(
            ring.start,
            ring.end,
            ring.position(asked.time_ms),
            ring.commits.get(asked.group),
            ring.read(asked.position, asked.records_max, asked.bytes_max)
            if asked.records_max
            else [],
        )

    def _make_room(self, ring: Ring, policy: MemoryPolicy, size_bytes: int) -> bool:
        floor, start = ring.floor(policy.groups), ring.start
        has_room = ring.make_room(size_bytes, policy.bytes_max, floor if policy.waits else ring.end)
        self.dropped += max(0, ring.start - max(floor, start))
        return has_room

    def _ring(self, topic: str) -> Ring:
        if topic not in self._policies:
            return Ring(self._base)
        return self._rings.setdefault(topic, Ring(self._base))
