"""The guard: trio's private names still mean what the simulation needs of them."""

import os
import subprocess
import sys

import pytest
import trio
import trio._core._run as trio_run
import trio.testing

from hermes_chaos.sim import determinism


async def _order_of_tasks() -> list[tuple[int, int]]:
    order: list[tuple[int, int]] = []

    async def step(name: int) -> None:
        for number in range(20):
            order.append((name, number))
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        for name in range(6):
            nursery.start_soon(step, name)
    return order


def test_trio_still_has_its_private_names() -> None:
    advice = (
        "trio changed its scheduler: see its test_scheduler_determinism.py, mend determinism.py"
    )
    assert "runq" in trio_run.Runner.__slots__, advice
    assert "deadlines" in trio_run.Runner.__slots__, advice
    assert callable(trio_run.Deadlines.next_deadline), advice
    assert isinstance(trio_run._ALLOW_DETERMINISTIC_SCHEDULING, bool), advice
    assert callable(trio_run._r.seed), advice
    assert callable(trio.testing.MockClock._autojump), advice


def test_one_seed_schedules_tasks_in_one_order() -> None:
    orders = {tuple(determinism.run(_order_of_tasks, seed=7)) for _ in range(5)}
    assert len(orders) == 1


def test_different_seeds_schedule_tasks_in_different_orders() -> None:
    orders = {tuple(determinism.run(_order_of_tasks, seed=seed)) for seed in range(5)}
    assert len(orders) == 5


def test_a_run_leaves_the_scheduler_as_it_was() -> None:
    was_allowed, state = trio_run._ALLOW_DETERMINISTIC_SCHEDULING, trio_run._r.getstate()
    determinism.run(_order_of_tasks, seed=1)
    assert trio_run._ALLOW_DETERMINISTIC_SCHEDULING is was_allowed
    assert trio_run._r.getstate() == state


def test_time_is_virtual_and_begins_at_zero() -> None:
    async def wait_a_day() -> tuple[float, float]:
        began_s = trio.current_time()
        await trio.sleep(86_400)
        return began_s, trio.current_time()

    assert determinism.run(wait_a_day, seed=1) == (0.0, 86_400.0)


def test_roles_draw_from_generators_of_their_own() -> None:
    draws = {
        (seed, role): determinism.rng_of(seed, role).random()
        for seed in range(3)
        for role in ("nemesis", "log dc1", "log dc2")
    }
    assert len(set(draws.values())) == 9
    # A literal, so that a change of the split (which changes every seed's history) is noticed.
    assert determinism.rng_of(1, "nemesis").getrandbits(32) == 3137909064


async def _steps_of_a_stopped_process() -> list[tuple[str, float]]:
    steps: list[tuple[str, float]] = []
    has_come = trio.Event()

    async def count(name: str) -> None:
        while True:
            await trio.sleep(1)
            steps.append((name, trio.current_time()))

    async def wait() -> None:
        with trio.move_on_after(2.5):
            await has_come.wait()
            steps.append(("it has come", trio.current_time()))

    async with trio.open_nursery() as nursery:
        stopped = determinism.inside("stopped")
        stopped.run(nursery.start_soon, count, "stopped")
        stopped.run(nursery.start_soon, wait)
        nursery.start_soon(count, "other")
        await trio.sleep(1.5)
        determinism.stop("stopped")
        has_come.set()
        await trio.sleep(3)
        determinism.go_on("stopped")
        await trio.sleep(1.25)
        nursery.cancel_scope.cancel()
    return sorted(steps, key=lambda step: step[1])


def test_a_stopped_process_takes_no_step_while_time_goes_on_and_then_meets_all_at_once() -> None:
    steps = determinism.run(_steps_of_a_stopped_process, seed=1)
    assert [at_s for name, at_s in steps if name == "other"] == [1, 2, 3, 4, 5]
    assert [at_s for name, at_s in steps if name == "stopped"] == [1, 4.5, 5.5]
    assert ("it has come", 4.5) in steps


async def _end_while_a_process_is_stopped() -> float:
    async with trio.open_nursery() as nursery:
        determinism.inside("stopped").run(nursery.start_soon, trio.sleep_forever)
        await trio.sleep(1)
        determinism.stop("stopped")
        nursery.cancel_scope.cancel()
        determinism.go_on("stopped")
    return trio.current_time()


def test_a_process_that_was_ended_while_it_was_stopped_ends_when_it_goes_on() -> None:
    assert determinism.run(_end_while_a_process_is_stopped, seed=1) == 1


async def _wait_behind_a_shield() -> None:
    with trio.CancelScope(shield=True):
        await trio.Event().wait()


async def _wait_for_what_never_comes() -> None:
    async with trio.open_nursery() as nursery:
        determinism.inside("stopped").run(nursery.start_soon, trio.sleep, 1, name="sleeps")
        nursery.start_soon(_wait_behind_a_shield, name="waits")
        await trio.sleep(0.5)
        determinism.stop("stopped")


def test_a_run_in_which_nothing_can_happen_any_more_ends_and_says_what_waits() -> None:
    with pytest.raises(determinism.StandsStill) as caught:
        determinism.run(_wait_for_what_never_comes, seed=1)
    assert "after 1 s" in str(caught.value)
    assert "sleeps (stopped)" in str(caught.value)
    assert "waits (" in str(caught.value)


def test_a_run_that_waits_for_longer_than_it_may_last_ends() -> None:
    with pytest.raises(determinism.StandsStill):
        determinism.run(trio.sleep, 3_600, seed=1, lasts_max_s=1_000)
    assert determinism.run(trio.sleep, 900, seed=1, lasts_max_s=1_000) is None


_PROGRAM = """
from hermes_chaos.sim.run import run_seed
verdicts = [run_seed(seed) for seed in (3,)]
print([(verdict.digest, verdict.published, verdict.deliveries) for verdict in verdicts])
"""


@pytest.mark.live
@pytest.mark.timeout(600)
def test_a_seed_has_one_history_in_every_process_and_under_every_hash_seed() -> None:
    outputs = set()
    for hash_seed in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
        outputs.add(done.stdout)
    assert len(outputs) == 1, outputs
    assert "None" not in outputs.pop()
