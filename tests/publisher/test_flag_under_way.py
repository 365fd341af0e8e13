"""What was published before its topic asked for other datacentres has its outcome as it would have
had: within the limit that it began with, and kept if a spool kept it.
"""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
import trio

from hermes_actors.config.fallback import FallbackConfig
from hermes_actors.fallback.node import Fallback
from hermes_actors.log.base import LATEST, TopicSettings
from hermes_actors.log.memory import MemoryLog
from hermes_actors.telemetry.metrics import Metrics
from hermes_chaos.sim.environment.clock import SimulatedClock
from tests.publisher.keeper import Keeper

OpenSwitched = Callable[..., AbstractAsyncContextManager]


@pytest.fixture
def open_switched(open_world) -> OpenSwitched:
    """A frontend with a remote; topics with the flag have no spool, the others perhaps."""

    @asynccontextmanager
    async def opened(*, has_spool: bool) -> AsyncIterator:
        own, remote = MemoryLog("dc1", SimulatedClock()), MemoryLog("dc2", SimulatedClock())
        async with trio.open_nursery() as nursery:
            fallback = Fallback(
                FallbackConfig(),
                own,
                {"dc2": remote},
                nursery,
                SimulatedClock(),
                random.Random(3),
                Metrics("hermes_frontend"),
            )
            keeper = Keeper(nursery=nursery, holds_back=False)
            parts = {"fallback": fallback, "spool": keeper if has_spool else None}
            async with open_world(parts=parts, log=own) as world:
                await remote.topics.create("shop.orders_1", TopicSettings())
                await world.add_topic("shop.orders")
                await trio.sleep(0.01)
                world.keeper, world.remote = keeper, remote
                yield world
            nursery.cancel_scope.cancel()

    return opened


async def answered_after(world, publication) -> tuple[int, float]:
    """Switch the flag on while it is being appended; its status, and the seconds until then."""
    started_s = trio.current_time()
    await trio.sleep(0.02)
    await world.add_topic("shop.orders", fallback=True, is_created=False)
    while not publication.is_answered:  # noqa: ASYNC110
        await trio.sleep(0.001)
    return publication.answer.status, trio.current_time() - started_s


async def test_silence_without_a_spool_is_answered_at_the_limit_that_it_began_with(
    open_switched, autojump_clock
) -> None:
    async with open_switched(has_spool=False) as world:
        world.log.faults.silent = True
        status, took_s = await answered_after(world, world.admit())
        assert (status, took_s) == (503, pytest.approx(0.065, abs=0.005))


async def test_newer_messages_of_its_key_do_not_overtake_it(open_switched, autojump_clock) -> None:
    async with open_switched(has_spool=True) as world:
        world.log.faults.unavailable_rate = 1.0
        world.log.faults.delay_s = (0.03, 0.03)
        await answered_after(world, world.admit(body=b"1", key=b"k"))
        later = [world.admit(body=b"2", key=b"k"), world.admit(body=b"3", key=b"other")]
        await trio.sleep(0.4)
        assert [each.answer.status for each in later] == [202, 201]
        assert world.keeper.bodies == [b"1", b"2"]
        ends = await world.remote.positions("shop.orders_1", LATEST)
        assert sum(ends.values()) == 1


async def test_an_own_log_that_is_found_while_the_flag_is_off_is_the_first_again(
    open_switched, autojump_clock
) -> None:
    async with open_switched(has_spool=False) as world:

        async def stored() -> list[int]:
            logs = (world.log, world.remote)
            return [sum((await log.positions("shop.late_1", LATEST)).values()) for log in logs]

        for log in (world.log, world.remote):
            await log.topics.create("shop.late_1", TopicSettings())
        world.log.faults.reads_failing = True
        await world.add_topic("shop.late", fallback=True, is_created=False)
        await trio.sleep(0.6)
        assert (await world.publish("shop.late")).status_code == 201
        world.log.faults.heal()
        assert await stored() == [0, 1]
        await world.add_topic("shop.late", fallback=False, is_created=False)
        await trio.sleep(1.5)
        await world.add_topic("shop.late", fallback=True, is_created=False)
        await trio.sleep(0.1)
        assert (await world.publish("shop.late")).status_code == 201
        assert await stored() == [1, 1]
