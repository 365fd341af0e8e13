"""A re-drive closes what it has delivered, and nothing that is given up again after that."""

import msgspec
import pytest
import trio

from hermes_actors.metadata.seek import Seek, SeekBody
from tests.consumer.redrive_scene import BAD, OK, Scene

AGAIN = Seek(1, SeekBody(7, 0, positions={"dc1": {0: 0}}))


@pytest.fixture
def scene(world):
    return Scene(world)


async def test_what_a_retransmission_gives_up_after_the_delivery_stays_open(scene, autojump_clock):
    await scene.with_letters(b"a", b"slow")
    scene.world.sender.script = lambda push: (3.0, OK) if push.body == b"slow" else OK
    live = scene.world.live()
    async with scene.world.consuming(live, keeps_letters=True) as consumer:
        await scene.ask()
        await trio.sleep(0.1)
        assert sorted(scene.bodies) == [b"a", b"slow"]
        scene.world.sender.script = lambda push: BAD if push.body == b"a" else OK
        consumer.ref.tell(msgspec.structs.replace(live, stamp=2, seek=AGAIN))
        await trio.sleep(10)
        assert sorted(scene.bodies) == [b"a", b"a", b"slow", b"slow"]
        assert (await scene.progress()).redriven == 2
        assert set(await scene.open()) == {b"a"}

        scene.world.sender.script = lambda _push: OK
        await scene.ask(number=2)
        await trio.sleep(10)
        assert scene.bodies[4:] == [b"a"]
        assert await scene.open() == {}


async def test_what_is_given_up_again_while_it_is_under_way_is_closed_by_its_delivery(
    scene, autojump_clock
):
    await scene.with_letters(b"a")
    scene.world.sender.script = lambda _push: (3.0, OK)
    live = scene.world.live()
    async with scene.world.consuming(live, keeps_letters=True) as consumer:
        await scene.ask()
        await trio.sleep(0.1)
        assert scene.bodies == [b"a"]
        scene.world.sender.script = lambda _push: BAD
        consumer.ref.tell(msgspec.structs.replace(live, stamp=2, seek=AGAIN))
        await trio.sleep(2)
        assert len(await scene.entries()) == 2
        await trio.sleep(8)
        assert await scene.open() == {}


async def test_what_was_given_up_by_a_clock_that_was_ahead_is_closed_all_the_same(
    scene, autojump_clock
):
    scene.world.clock.skew_ms = 60_000
    await scene.with_letters(b"a")
    scene.world.clock.skew_ms = 0
    async with scene.world.consuming(keeps_letters=True):
        await scene.ask()
        await trio.sleep(10)
        assert scene.bodies == [b"a"]
        assert await scene.open() == {}
