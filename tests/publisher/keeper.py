"""A spool whose disk finishes when the test says so."""

from collections.abc import Callable, Sequence

import trio

from hermes_actors.config.fallback import SpoolConfig
from hermes_actors.fallback.spool.format import SpoolEntry
from hermes_actors.fallback.spool.spool import Offer
from hermes_actors.fallback.spool.store import SpoolUnavailable
from hermes_actors.model.message import Message
from hermes_actors.runtime.clock import Clock
from hermes_chaos.sim.environment.clock import SimulatedClock


class Keeper:
    """`room` is how many messages it still accepts; an offer is accepted whole or not at all."""

    config = SpoolConfig()

    def __init__(
        self,
        room: int = 1_000,
        nursery: trio.Nursery | None = None,
        *,
        holds_back: bool = True,
        clock: Clock | None = None,
    ) -> None:
        """With a nursery, the disk takes a millisecond by itself. `holds_back`: newer messages of a
        topic wait behind those in the spool.
        """
        self.holds_back = holds_back
        self.clock: Clock = clock or SimulatedClock()
        self.room = room
        self.taken: list[Message] = []
        self.concluded_as: list[list[bool]] = []
        self.keys: set[bytes] = set()
        self._done: list[Callable[[SpoolUnavailable | None], None]] = []
        self._nursery = nursery
        self.index = self

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.taken]

    @property
    def ids(self) -> list[str]:
        return [message.id for message in self.taken]

    def offer(
        self,
        entries: Sequence[SpoolEntry],
        done: Callable[[SpoolUnavailable | None], None],
        *,
        is_sent: bool,
    ) -> Offer | None:
        if self.room < len(entries):
            return None
        self.room -= len(entries)
        self.taken += [entry.message for entry in entries]
        self.keys.update(each.message.key for each in entries if each.message.key is not None)
        self._done.append(done)
        if self._nursery is not None:
            self._nursery.start_soon(self._write)
        return Offer([], [], done)

    async def _write(self) -> None:
        await trio.sleep(0.001)
        self.written()

    def has(self, topic: str) -> bool:
        return self.holds_back and bool(self.taken)

    def holds(self, log_topic: str, key: bytes) -> bool:
        return key in self.keys

    async def catch_up(self, log_topic: str, is_behind: Callable[[], bool]) -> None:
        await trio.lowlevel.checkpoint()

    def concluded(self, _offer: Offer, are_stored: Sequence[bool]) -> None:
        self.concluded_as.append(list(are_stored))

    def written(self, error: SpoolUnavailable | None = None) -> None:
        done, self._done = self._done, []
        for each in done:
            each(error)
