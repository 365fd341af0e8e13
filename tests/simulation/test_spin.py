import trio

from hermes_chaos.sim import determinism
from hermes_chaos.sim.spin import SpinGuard


async def _run_guarded(steps: int, steps_max: int) -> list[str]:
    found: list[str] = []

    async def spin() -> None:
        for _ in range(steps):
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:

        def on_spin(task: str) -> None:
            found.append(task)
            nursery.cancel_scope.cancel()

        trio.lowlevel.add_instrument(SpinGuard(on_spin, steps_max))
        for _ in range(5):
            await trio.sleep(1.0)
        nursery.start_soon(spin)
    return found


def test_a_busy_loop_ends_the_run_and_is_named() -> None:
    (name,) = determinism.run(_run_guarded, 10**9, 1_000, seed=1)
    assert name.endswith("spin")


def test_many_steps_at_many_moments_are_no_busy_loop() -> None:
    assert determinism.run(_run_guarded, 900, 1_000, seed=1) == []
