import pytest
import trio

from hermes_actors.consumer.senders.push_tasks import PushTasks


class Scene:
    def __init__(self, nursery, tasks_max=10):
        self.faults = []
        self.told = []
        self.tasks = PushTasks(nursery, tasks_max, self.faults.append)

    def start(self, work, done=None, lane=""):
        self.tasks.start(
            work,
            done or self.told.append,
            closed="closed",
            overloaded="overloaded",
            broken=lambda error: f"broken: {error!r}",
            subscription=lane,
        )


@pytest.fixture
async def scene(nursery):
    return Scene(nursery)


async def done():
    return "done"


async def slow():
    await trio.sleep(1)
    return "slow"


async def bad():
    raise ZeroDivisionError("secret")


async def test_what_nobody_expects_fails_its_push_is_counted_and_ends_no_other(
    scene, autojump_clock, caplog
):
    scene.start(slow)
    scene.start(bad)
    await trio.sleep(2)
    assert scene.told == ["broken: ZeroDivisionError('secret')", "slow"]
    assert [type(each) for each in scene.faults] == [ZeroDivisionError]
    assert "a push met what it did not expect" in caplog.text


async def test_who_raises_when_he_is_told_ends_no_other(scene, autojump_clock):
    def told(_made):
        raise KeyError

    scene.start(done, told)
    await trio.testing.wait_all_tasks_blocked()
    scene.start(done)
    await trio.testing.wait_all_tasks_blocked()
    assert scene.told == ["done"]
    assert [type(each) for each in scene.faults] == [KeyError]


async def test_a_forgotten_lanes_tasks_end_and_no_others(nursery, autojump_clock):
    scene = Scene(nursery, 2)
    scene.start(trio.sleep_forever, lane="a")
    scene.start(slow, lane="b")
    scene.start(done, lane="c")
    scene.tasks.forget("a")
    scene.tasks.forget("nobody")
    await trio.testing.wait_all_tasks_blocked()
    assert sorted(scene.told) == ["closed", "overloaded"]
    # Its place is free again.
    scene.start(done, lane="a")
    await trio.sleep(2)
    assert sorted(scene.told) == ["closed", "done", "overloaded", "slow"]
