"""Dead letters in Avro, delivered again as their subscription takes them."""

import trio

from hermes_actors.consumer.delivery.bodies import PATIENCE_S
from hermes_actors.model.topic import ContentType
from tests.consumer.avro_scene import NAMED, PLAIN, Avro, avro
from tests.consumer.redrive_scene import Scene


async def open_letters(world, schemas):
    """Letters of three messages: two that the endpoint refused, and one of an unknown schema."""
    scene, letters = Avro(world), Scene(world)
    for number, text in schemas.items():
        scene.source.add(number, number * 11, text)
    await scene.publish(avro(PLAIN, n=1), 1, 11)
    await scene.publish(avro(NAMED, n=2, name="x"), 2, 22)
    await scene.world.publish(b'{"n":3}')
    async with scene.consuming():
        await trio.sleep(PATIENCE_S + 5)
    letters.is_down = False
    world.sender.pushes.clear()
    return scene, letters


async def test_avro_is_made_json_again_when_it_is_re_driven(world, autojump_clock):
    scene, letters = await open_letters(world, {1: PLAIN, 2: NAMED})
    async with scene.consuming():
        await letters.ask()
        await trio.sleep(5)
        assert sorted(scene.bodies) == [b'{"n":1}', b'{"n":2,"name":"x"}', b'{"n":3}']
        assert await letters.open() == {}


async def test_a_re_drive_after_the_subscription_takes_avro_pushes_the_avro(world, autojump_clock):
    scene, letters = await open_letters(world, {1: PLAIN, 2: NAMED})
    async with scene.consuming(scene.live(ContentType.AVRO)):
        await letters.ask()
        await trio.sleep(5)
        headers = {body: scene.headers(at) for at, body in enumerate(scene.bodies)}
        assert headers.keys() == {avro(PLAIN, n=1), avro(NAMED, n=2, name="x"), b'{"n":3}'}
        assert headers[avro(NAMED, n=2, name="x")]["Schema-Id"] == "22"
        assert headers[b'{"n":3}']["Content-Type"] == "application/json"


async def test_what_still_cannot_be_read_is_a_newer_letter_and_delivered_when_it_can(
    world, autojump_clock
):
    scene, letters = await open_letters(world, {1: PLAIN})
    async with scene.consuming():
        await letters.ask()
        await trio.sleep(PATIENCE_S + 15)
        assert sorted(scene.bodies) == [b'{"n":1}', b'{"n":3}']
        (letter,) = (await letters.open()).values()
        assert (letter.reason, letter.redrives) == ("undecodable", 1)
        assert letter.value == avro(NAMED, n=2, name="x")
        progress = await letters.progress()
        assert (progress.redriven, progress.failed) == (2, 1)
        assert progress.is_done
        scene.source.add(2, 22, NAMED)
        await letters.ask(number=2)
        await trio.sleep(5)
        assert scene.bodies[2:] == [b'{"n":2,"name":"x"}']
        assert await letters.open() == {}
    assert world.crashes == []
