"""Nothing acknowledged is lost, whatever step a crash comes at and whatever byte it cuts.

A message that was sent may come again. What was never offered does not come at all.
"""

import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.fallback.spool.format import encode_entry
from hermes_actors.fallback.spool.store import Place, SegmentStore, SpoolUnavailable
from hermes_chaos.sim.environment.disk import SimulatedDisk
from tests.fallback.spool.conftest import make_entry
from tests.seeds import seeds

_DISK_BYTES_MAX = 64 * 600
"""Segments of 600 bytes: a few entries each."""


class _Crash(BaseException):
    pass


class _CrashingDisk(SimulatedDisk):
    """Its process dies after so many changes, in the middle of the last one."""

    steps_left = 10**9

    def write(self, name: str, at: int, content: bytes, *, syncs: bool = True) -> None:
        if self._dies():
            super().write(name, at, content[: self._rng.randint(0, len(content))], syncs=False)
            raise _Crash
        super().write(name, at, content, syncs=syncs)

    def mark(self, name: str, places: Sequence[int], content: bytes) -> None:
        if self._dies():
            super().mark(name, places[: self._rng.randint(0, len(places))], content)
            raise _Crash
        super().mark(name, places, content)

    def delete(self, name: str) -> None:
        if self._dies():
            if self._rng.random() < 0.5:
                super().delete(name)
            raise _Crash
        super().delete(name)

    def truncate(self, name: str, size_bytes: int) -> None:
        if self._dies():
            raise _Crash
        super().truncate(name, size_bytes)

    def _dies(self) -> bool:
        self.steps_left -= 1
        return self.steps_left < 0


async def _at_once(change: Any) -> Any:
    await trio.lowlevel.checkpoint()
    return change()


class _History:
    """What was offered, acknowledged and done, in all lives of one spool."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.disk = _CrashingDisk(rng)
        self.offered: list[bytes] = []
        self.acknowledged: set[bytes] = set()
        self.done: set[bytes] = set()

    async def live(self, steps: int) -> None:
        """One life: take over, check, go on until the crash."""
        store = SegmentStore(self.disk, _DISK_BYTES_MAX, _at_once, _at_once)
        found, damaged = await store.load()
        places = {entry.message.id.encode(): place for place, entry in found}
        self._check(list(places), damaged)
        self.disk.steps_left = self.rng.randrange(2 * steps + 1)
        for _step in range(steps):
            await self._step(store, places)

    async def _step(self, store: SegmentStore, places: dict[bytes, Place]) -> None:
        drawn = self.rng.random()
        self.disk.is_full = self.rng.random() < 0.1
        self.disk.is_failing = self.rng.random() < 0.1
        try:
            if drawn < 0.5:
                await self._append(store, places)
            elif drawn < 0.75:
                for name in self.rng.sample(sorted(places), len(places) // 2):
                    store.settle(places.pop(name))
                    self.done.add(name)
            elif drawn < 0.95:
                await store.tidy(at_end=drawn < 0.8)
            else:
                await store.set_aside(b"{}\n")
        except SpoolUnavailable:
            pass

    async def _append(self, store: SegmentStore, places: dict[bytes, Place]) -> None:
        first = len(self.offered)
        bodies = [b"%d" % (first + n) for n in range(self.rng.randint(1, 4))]
        self.offered += [f"id-{body!r}".encode() for body in bodies]
        kept = await store.append([encode_entry(make_entry(body)) for body in bodies])
        places.update(zip(self.offered[first:], kept, strict=True))
        self.acknowledged.update(self.offered[first:])

    def _check(self, found: list[bytes], damaged: int) -> None:
        assert self.acknowledged - self.done <= set(found)
        assert found == [name for name in self.offered if name in set(found)], "in their order"
        assert damaged == 0


@given(st.integers(0, 2**32))
def test_a_crash_at_any_step_loses_nothing_acknowledged_and_keeps_the_order(seed: int) -> None:
    async def lives() -> None:
        history = _History(random.Random(seed))
        for _life in range(5):
            with suppress(_Crash):
                await history.live(12)
            history.disk.heal()
            history.disk.lose_power()
        await history.live(0)

    trio.run(lives)


@pytest.mark.parametrize("seed", seeds(8))
async def test_killed_nodes_store_all_that_they_answered_202_in_order_for_each_key(
    open_spooling, memory_log, autojump_clock, seed
):
    rng = random.Random(seed)
    disk, log = SimulatedDisk(rng, write_s=(0.001, 0.004)), await memory_log()
    log.faults.delay_s = (0.0, 0.02)
    kept: list[int] = []
    number = 0
    for _life in range(4):
        log.faults.unavailable_rate = rng.choice((0.0, 0.3, 1.0))
        log.faults.acknowledgement_lost_rate = rng.choice((0.0, 0.3))
        disk.is_full = disk.is_failing = False
        async with open_spooling(disk, disk_bytes_max=64 * 2_000) as spooling:
            spooling.replay(log)
            with trio.move_on_after(rng.uniform(0.05, 0.4)):
                while True:
                    number += 1
                    spooling.offer(make_entry(b"%d" % number, b"%d" % (number % 3)))
                    disk.is_full = rng.random() < 0.02
                    if rng.random() < 0.01:
                        spooling.supervisor.crash(rng.choice(("spool writer", "replayer")))
                    await trio.sleep(rng.uniform(0.0, 0.004))
            kept += [int(name) for name, answer in spooling.answers if answer == "kept"]
    disk.is_full = False
    log.faults.heal()
    async with open_spooling(disk, disk_bytes_max=64 * 2_000) as spooling:
        spooling.replay(log)
        await spooling.wait_empty()
        bodies = [int(body) for body in await spooling.bodies(log)]
        await spooling.supervisor.stop("replayer")
        await spooling.supervisor.stop("spool writer")
    assert len(kept) > 20
    assert set(kept) <= set(bodies)
    firsts = list(dict.fromkeys(bodies))
    for key in range(3):
        mine = [n for n in firsts if n % 3 == key and n in set(kept)]
        assert mine == sorted(mine)
    assert [name for name in disk.files if name.endswith(".spool")] == []
