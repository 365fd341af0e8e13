"""A re-drive that somebody cancels stops at once, whatever it is at."""

from contextlib import asynccontextmanager

import pytest
import trio

from tests.consumer.redrive_scene import DLQ, Scene


@pytest.fixture
def scene(world):
    return Scene(world)


async def test_a_cancelled_redrive_is_no_trouble_any_more(scene, autojump_clock):
    await scene.with_letters(b"a")
    async with scene.world.consuming(keeps_letters=True) as consumer:
        await trio.sleep(5)
        await scene.ask()
        scene.world.log.faults.reads_failing = True
        await trio.sleep(5)
        assert "its re-drive waits: " in consumer.status().held_back
        scene.board.ask(None)
        await trio.sleep(10)
        assert consumer.status().held_back == ""


async def test_a_redrive_that_is_cancelled_stops(scene, autojump_clock):
    await scene.with_letters(*[b"%d" % n for n in range(50)])
    async with scene.world.consuming(keeps_letters=True):
        await scene.ask(rate=10)
        await trio.sleep(2)
        scene.board.ask(None)
        await trio.sleep(1)
        delivered = len(scene.bodies)
        await trio.sleep(20)
        assert len(scene.bodies) == delivered < 40
        await scene.ask(number=1, rate=100)
        await trio.sleep(20)
        assert (await scene.progress()).is_done
    assert len(scene.bodies) == 50
    assert await scene.open() == {}


async def test_a_cancel_while_a_long_log_is_planned_is_noticed_at_once(
    scene, monkeypatch, autojump_clock
):
    await scene.with_letters(*[b"%d" % n for n in range(50)])
    log, batches = scene.world.log, []
    plain = log.reader

    class Slow:
        """A batch of one record each second."""

        def __init__(self, reader):
            self._reader = reader

        async def next_batch(self, *_bounds):
            batches.append(trio.current_time())
            await trio.sleep(1)
            return await self._reader.next_batch(1, 1)

    @asynccontextmanager
    async def slow(topic, positions):
        async with plain(topic, positions) as reader:
            yield Slow(reader) if topic == DLQ else reader

    monkeypatch.setattr(log, "reader", slow)
    async with scene.world.consuming(keeps_letters=True):
        await scene.ask()
        await trio.sleep(4.5)
        scene.board.ask(None)
        read = len(batches)
        await trio.sleep(60)
    assert 0 < read < 10
    assert len(batches) <= read + 1
    assert scene.bodies == []
