"""Pushes as tasks: each ends once, and none ends another."""

import trio
import trio.testing

from hermes_actors.consumer.senders.push_tasks import PushTasks
from hermes_actors.consumer.senders.sender import Failure, SendOutcome


async def quick():
    return SendOutcome(200)


async def slow():
    await trio.sleep(1)
    return SendOutcome(201)


async def bad():
    raise ZeroDivisionError("secret")


async def test_a_defect_fails_its_push_is_logged_and_ends_no_other(nursery, autojump_clock, caplog):
    outcomes = []
    tasks = PushTasks(nursery, 10)
    tasks.start("a", slow, outcomes.append)
    tasks.start("a", bad, outcomes.append)
    tasks.start("a", quick, lambda _outcome: 1 / 0)
    await trio.sleep(2)
    assert [each.failure for each in outcomes] == [Failure.MALFORMED, None]
    assert "secret" not in outcomes[0].detail
    assert "a push failed unexpectedly" in caplog.text
    assert "an outcome could not be handled" in caplog.text


async def test_a_forgotten_subscriptions_tasks_end_and_no_others(nursery, autojump_clock):
    outcomes = {}
    tasks = PushTasks(nursery, 2)

    def start(name, work):
        tasks.start(name, work, lambda outcome: outcomes.setdefault(name, outcome.failure))

    start("a", trio.sleep_forever)
    start("b", slow)
    start("c", quick)
    tasks.forget("a")
    tasks.forget("nobody")
    await trio.testing.wait_all_tasks_blocked()
    assert outcomes == {"a": Failure.CLOSED, "c": Failure.OVERLOADED}
    # Its place is free again.
    start("d", quick)
    await trio.sleep(2)
    assert (outcomes["b"], outcomes["d"]) == (None, None)
