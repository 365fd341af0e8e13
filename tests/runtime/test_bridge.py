"""The bridge lets either loop await a trio coroutine."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import trio

from hermes_actors.runtime import guest
from hermes_actors.runtime.bridge import BridgeClosed, TrioBridge, open_bridge

hosts = pytest.mark.parametrize("host", ["asyncio", "uvloop"])


async def double(number: int) -> int:
    await trio.lowlevel.checkpoint()
    return number * 2


async def refuse() -> None:
    await trio.lowlevel.checkpoint()
    raise LookupError("no such group")


def run_on_the_host_side(native: Callable[[TrioBridge], Awaitable[None]], host: str) -> None:
    async def main() -> None:
        async with open_bridge() as bridge:
            await guest.call(native, bridge)

    guest.run(main, host=host)


@hosts
def test_the_host_side_gets_the_value(host: str) -> None:
    values: list[int] = []

    async def native(bridge: TrioBridge) -> None:
        values.append(await bridge.call(double, 21))

    run_on_the_host_side(native, host)
    assert values == [42]


@hosts
def test_the_host_side_gets_the_error(host: str) -> None:
    async def native(bridge: TrioBridge) -> None:
        with pytest.raises(LookupError, match="no such group"):
            await bridge.call(refuse)

    run_on_the_host_side(native, host)


async def test_from_trio_it_is_a_plain_await() -> None:
    async with open_bridge() as bridge:
        assert await bridge.call(double, 21) == 42
        with pytest.raises(LookupError, match="no such group"):
            await bridge.call(refuse)


@hosts
def test_cancelling_the_caller_cancels_the_trio_side(host: str) -> None:
    async def wait(started: asyncio.Event, ended: asyncio.Event) -> None:
        started.set()
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    async def native(bridge: TrioBridge) -> None:
        started, ended = asyncio.Event(), asyncio.Event()
        caller = asyncio.ensure_future(bridge.call(wait, started, ended))
        await started.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        await asyncio.wait_for(ended.wait(), 10)

    run_on_the_host_side(native, host)


@hosts
def test_a_call_under_way_when_the_node_stops_gets_bridge_closed(host: str) -> None:
    errors: list[BaseException] = []

    async def native(bridge: TrioBridge) -> None:
        started = asyncio.Event()

        async def wait() -> None:
            started.set()
            await trio.sleep_forever()

        caller = asyncio.ensure_future(bridge.call(wait))
        await started.wait()
        bridge.close()
        errors.extend(
            error
            for error in await asyncio.gather(caller, return_exceptions=True)
            if error is not None
        )

    async def main() -> None:
        async with trio.open_nursery() as outer, open_bridge() as bridge:
            with trio.CancelScope(shield=True):
                await guest.call(native, bridge)
            outer.cancel_scope.cancel()

    guest.run(main, host=host)
    assert [type(error) for error in errors] == [BridgeClosed]


@hosts
def test_a_call_after_the_end_is_refused_as_closed(host: str) -> None:
    async def native(bridge: TrioBridge) -> None:
        with pytest.raises(BridgeClosed):
            await bridge.call(double, 1)

    async def main() -> None:
        async with open_bridge() as bridge:
            pass
        await guest.call(native, bridge)

    guest.run(main, host=host)
