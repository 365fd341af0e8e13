"""A node's connection to its datacentre's coordination log, which has its own faults.

Records reach the log in order, but perhaps late, even after the node has given them up or has died,
as if they had been in a socket.
"""

import random
from collections.abc import Callable, Collection, Sequence

import trio

from hermes_actors.log.base import (
    Log,
    LogUnavailable,
    Outcome,
    Reader,
    UnavailableRecord,
    UnknownRecord,
)
from hermes_actors.model.record import Record, StoredRecord
from hermes_actors.model.topic import Ack

_REFUSAL_S = 0.01
_REFUSED_RATE = 0.5


class CoordinationWay:
    """Initially without faults; the attributes may be changed at any time."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._busy_until_s = 0.0
        self.calm()

    def calm(self) -> None:
        """End all faults. What is under way still takes its time."""
        self.append_s = 0.0
        """Delay of appends, in seconds."""
        self.read_s = 0.0
        """Delay of reads, in seconds."""
        self.is_cut = False
        """Appends and reads are refused."""
        self.loses_acknowledgements = False
        """Stored records are not confirmed."""
        self.failing_rate = 0.0
        """The share of appends that is refused, or stored and not confirmed."""

    @property
    def is_idle(self) -> bool:
        """True if nothing is under way."""
        return self._busy_until_s <= trio.current_time()

    async def append(
        self, log: Log, topic: str, partition: int, batch: Sequence[Record], ack: Ack
    ) -> Sequence[Outcome]:
        """As `Log.append`."""
        if self.is_cut:
            await trio.sleep(_REFUSAL_S)
            return [UnavailableRecord("the log cannot be reached") for _ in batch]
        is_failing = self._rng.random() < self.failing_rate
        if is_failing and self._rng.random() < _REFUSED_RATE:
            await trio.sleep(_REFUSAL_S)
            return [UnavailableRecord("the log has no leader") for _ in batch]
        at_s = max(trio.current_time() + self.append_s, self._busy_until_s)
        outcomes: Sequence[Outcome]
        if at_s <= trio.current_time():
            outcomes = await log.append(topic, partition, batch, ack)
        else:
            self._busy_until_s = at_s
            outcomes = await self._append_at(at_s, log, topic, partition, batch, ack)
        if self.loses_acknowledgements or is_failing:
            return [UnknownRecord("the connection broke before the answer") for _ in batch]
        return outcomes

    async def _append_at(
        self,
        at_s: float,
        log: Log,
        topic: str,
        partition: int,
        batch: Sequence[Record],
        ack: Ack,
    ) -> Sequence[Outcome]:
        outcomes: list[Outcome] = []
        is_answered = trio.Event()

        async def carry() -> None:
            await trio.sleep_until(at_s)
            outcomes.extend(await log.append(topic, partition, batch, ack))
            is_answered.set()

        # A system task, because it must go on when the node gives up, is paused or dies.
        trio.lowlevel.spawn_system_task(carry)
        await is_answered.wait()
        return outcomes

    async def gate(self) -> None:
        """Wait as the read faults demand. Raises LogUnavailable."""
        if self.is_cut:
            await trio.sleep(_REFUSAL_S)
            raise LogUnavailable("the log cannot be reached")
        if self.read_s:
            await trio.sleep(self.read_s)


class LateReader:
    """Satisfies `Reader` over such a connection; records are reported before they are handed on."""

    def __init__(
        self,
        reader: Reader,
        way: CoordinationWay,
        on_read: Callable[[Sequence[StoredRecord]], None],
    ) -> None:
        self._reader = reader
        self._way = way
        self._on_read = on_read

    @property
    def doubtful(self) -> Collection[int]:
        """As `Reader.doubtful`."""
        return self._reader.doubtful

    def position(self, partition: int) -> int:
        """As `Reader.position`."""
        return self._reader.position(partition)

    def seek(self, partition: int, position: int) -> None:
        """As `Reader.seek`."""
        self._reader.seek(partition, position)

    async def next_batch(self, records_max: int, bytes_max: int) -> Sequence[StoredRecord]:
        """As `Reader.next_batch`."""
        await self._way.gate()
        batch = await self._reader.next_batch(records_max, bytes_max)
        if self._way.read_s:
            await trio.sleep(self._way.read_s)
        self._on_read(batch)
        return batch
