"""Following a log: what comes, silence, a log that shrank, was emptied, or is away."""

import random
from collections.abc import Sequence

import pytest
import trio

from hermes_actors.log.base import TopicSettings
from hermes_actors.log.cursor import Cursor
from hermes_actors.log.memory import MemoryLog
from hermes_actors.log.tail import VERIFY_INTERVAL_S, LogChanged, LogTail
from hermes_actors.model.record import Record, StoredRecord
from hermes_actors.model.topic import Ack
from hermes_actors.runtime.backoff import Backoff
from hermes_chaos.sim.environment.clock import SimulatedClock

TOPIC = "t"


class Scene:
    """A log of one topic, and a tail of it."""

    def __init__(self) -> None:
        self.log = MemoryLog("dc1", SimulatedClock())
        self.tail = LogTail(
            self.log, TOPIC, Backoff(random.Random(1)), records_max=10, bytes_max=1_000
        )

    async def create(self) -> None:
        await self.log.topics.create(TOPIC, TopicSettings(partitions=1))

    async def append(self, *values: bytes) -> None:
        await self.log.append(TOPIC, 0, [Record(None, each, (), 1) for each in values], Ack.ALL)

    def lose(self, count: int) -> None:
        """The last records go, as when a broker takes over that had not copied them."""
        partition = self.log.topics.known(TOPIC).partitions[0]
        del partition.records[-count:]
        partition.replicated = partition.end


async def ignore(batch: Sequence[StoredRecord]) -> None:
    """What came is of no interest."""


@pytest.fixture
async def scene(autojump_clock: trio.abc.Clock) -> Scene:
    scene = Scene()
    await scene.create()
    return scene


async def test_what_is_there_comes_and_a_silence_is_an_empty_batch(scene: Scene) -> None:
    await scene.append(b"a", b"b")
    came: list[list[bytes]] = []

    async def fold(batch: Sequence[StoredRecord]) -> None:
        came.append([each.value for each in batch])
        if not batch:
            await scene.append(b"c")

    with trio.move_on_after(1.5):
        await scene.tail.follow(0, fold)
    assert came == [[b"a", b"b"], [], [b"c"]]


async def test_the_end_that_is_to_be_reached_may_move_on(scene: Scene) -> None:
    await scene.append(b"a")
    ends: list[int] = []

    async def caught_up(end: int) -> int:
        ends.append(end)
        if end == 1:
            await scene.append(b"b")
        return 2

    with trio.move_on_after(5):
        await scene.tail.follow(0, ignore, end=1, caught_up=caught_up)
    assert ends == [1, 2]


async def test_a_log_that_ends_below_what_was_read_has_changed(scene: Scene) -> None:
    await scene.append(b"a", b"b")
    async with trio.open_nursery() as nursery:

        async def lose_in_the_silence() -> None:
            await trio.sleep(0.5)
            scene.lose(1)

        nursery.start_soon(lose_in_the_silence)
        with pytest.raises(LogChanged, match="ends at 1, 2 was read already"):
            await scene.tail.follow(0, ignore)


async def test_a_log_that_does_not_give_what_it_has_has_changed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.append(b"a")
    monkeypatch.setattr(Cursor, "in_turn", lambda _cursor: iter(()))
    with pytest.raises(LogChanged, match="nothing after 0 comes"):
        await scene.tail.follow(0, ignore)


async def test_a_log_that_was_cut_and_written_on_between_two_readings_has_changed(
    scene: Scene,
) -> None:
    await scene.append(b"a", b"b")

    async def fold(batch: Sequence[StoredRecord]) -> None:
        if batch:
            scene.lose(2)
            await scene.append(b"a", b"other")

    began_s = trio.current_time()
    with pytest.raises(LogChanged, match="no longer holds what was read last"):
        await scene.tail.follow(0, fold, verifies=True)
    assert trio.current_time() - began_s <= VERIFY_INTERVAL_S + 1


async def test_each_trouble_is_told_and_tried_again(scene: Scene) -> None:
    told: list[str] = []
    changes: list[str] = []
    tries = 0

    async def follow() -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            scene.log.faults.cut()
            await scene.tail.bounds()
        elif tries == 2:
            scene.log.faults.heal()
            await scene.log.topics.delete(TOPIC)
            await scene.tail.bounds()
        elif tries == 3:
            raise LogChanged("it is another one")
        else:
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.tail.run, follow, told.append, changes.append, "the status log")
        await trio.sleep(60)
        nursery.cancel_scope.cancel()
    assert len(told) == 2
    assert told[0] == "the status log does not answer" or "is unavailable" in told[0]
    assert told[1] == "the status log has no topic t yet"
    assert changes == ["it is another one"]
    assert tries == 4
