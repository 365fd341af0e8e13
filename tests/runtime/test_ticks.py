"""The guest is driven from the host's own poll, and runs as trio has it where that cannot be."""

import asyncio
import random
import socket
import threading
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import uvloop

from hermes_actors.runtime.ticks import Ticks

HOSTS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
hosts = pytest.mark.parametrize("host", HOSTS)


def run(
    main: Callable[[], Awaitable[Any]],
    host: str,
    *,
    clock: trio.abc.Clock | None = None,
    is_known: bool = True,
) -> tuple[Any, bool]:
    """What `main` gives, and whether it was driven directly. Not known: trio's tick is hidden."""

    async def on_host() -> tuple[Any, bool]:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Any] = loop.create_future()
        ticks = Ticks(loop)
        trio.lowlevel.start_guest_run(
            main,
            run_sync_soon_threadsafe=loop.call_soon_threadsafe,
            run_sync_soon_not_threadsafe=(
                ticks.soon if is_known else lambda tick: ticks.soon(lambda: tick())
            ),
            done_callback=ended.set_result,
            host_uses_signal_set_wakeup_fd=True,
            clock=clock,
        )
        return (await ended).unwrap(), ticks.is_direct

    with asyncio.Runner(loop_factory=HOSTS[host]) as runner:
        return runner.run(asyncio.wait_for(on_host(), 20))


def trio_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "trio" in thread.name.lower()]


@hosts
def test_the_installed_trio_is_driven_directly_and_waits_in_no_thread(host: str) -> None:
    async def main() -> Any:
        await trio.sleep(0.002)
        return trio_threads()

    idle = trio_threads()
    threads, is_direct = run(main, host)
    assert is_direct
    assert threads == idle


@hosts
def test_a_trio_whose_inner_names_are_not_known_runs_as_it_does_by_itself(host: str) -> None:
    async def main() -> Any:
        await trio.sleep(0.002)
        return trio_threads()

    threads, is_direct = run(main, host, is_known=False)
    assert not is_direct
    assert threads


@hosts
def test_an_event_set_in_a_turn_of_the_host_wakes_a_task_that_waits_for_nothing_else(
    host: str,
) -> None:
    async def main() -> Any:
        event = trio.Event()
        asyncio.get_running_loop().call_later(0.002, event.set)
        await event.wait()
        return "woken"

    assert run(main, host) == ("woken", True)


@hosts
def test_a_deadline_moved_in_a_turn_of_the_host_holds_from_then_on(host: str) -> None:
    async def main() -> Any:
        with trio.CancelScope() as scope:

            def move() -> None:
                scope.deadline = trio.current_time() + 0.002

            asyncio.get_running_loop().call_later(0.002, move)
            await trio.sleep_forever()
        return scope.cancelled_caught

    assert run(main, host) == (True, True)


@hosts
def test_a_wait_that_is_too_short_for_a_timer_is_followed_by_others(host: str) -> None:
    # uvloop's handle of such a timer is another one, which does not say when it is due.
    loop = HOSTS[host]()
    ticks = Ticks(loop)
    ticks._state = SimpleNamespace(runner=SimpleNamespace(guest_tick_scheduled=True))
    for wait_s in (0.0001, 0.0001, 1.0, 0.0001):
        ticks._wait(wait_s)
    assert ticks._is_waiting
    loop.close()


@hosts
def test_sleeps_of_any_order_of_lengths_end_in_time_order_and_not_early(host: str) -> None:
    rng = random.Random(7)
    lengths_ms = [rng.uniform(0, 30) for _ in range(100)] + [10_000]

    async def main() -> Any:
        ended: list[float] = []

        async def sleep(length_ms: float) -> None:
            await trio.sleep(rng.uniform(0, 5) / 1_000)
            start_s = trio.current_time()
            await trio.sleep(length_ms / 1_000)
            ended.append((trio.current_time() - start_s) * 1_000 - length_ms)
            if len(ended) == len(lengths_ms) - 1:
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for length_ms in lengths_ms:
                nursery.start_soon(sleep, length_ms)
        return ended

    late_ms, is_direct = run(main, host)
    assert is_direct
    assert len(late_ms) == 100
    assert min(late_ms) >= 0


@hosts
def test_more_sockets_than_one_poll_takes_are_all_told_of(host: str) -> None:
    async def main() -> Any:
        heard: list[tuple[int, bytes]] = []
        with ExitStack() as stack:
            pairs = [[stack.enter_context(end) for end in socket.socketpair()] for _ in range(50)]

            async def hear(number: int, end: socket.socket) -> None:
                for _ in range(20):
                    await trio.lowlevel.wait_readable(end)
                    heard.append((number, end.recv(1)))

            async with trio.open_nursery() as nursery:
                for number, (_, end) in enumerate(pairs):
                    nursery.start_soon(hear, number, end)
                for _ in range(20):
                    for end, _ in pairs:
                        end.send(b"x")
                    await trio.lowlevel.checkpoint()
        return len(heard)

    assert run(main, host) == (1_000, True)


@hosts
def test_a_busy_guest_hears_its_sockets_all_the_same(host: str) -> None:
    async def main() -> Any:
        left, right = socket.socketpair()
        with left, right:
            turns = 0

            async def be_busy() -> None:
                nonlocal turns
                while True:
                    await trio.lowlevel.checkpoint()
                    turns += 1
                    if turns == 100:
                        left.send(b"x")

            async with trio.open_nursery() as nursery:
                nursery.start_soon(be_busy)
                await trio.lowlevel.wait_readable(right)
                nursery.cancel_scope.cancel()
            return 100 <= turns < 200

    assert run(main, host) == (True, True)


@hosts
def test_threads_come_back_and_call_in(host: str) -> None:
    async def main() -> Any:
        def work() -> bool:
            return trio.from_thread.run_sync(trio.current_time) > 0

        return [await trio.to_thread.run_sync(work) for _ in range(20)]

    assert run(main, host) == ([True] * 20, True)


@hosts
def test_a_task_wakes_a_thread_at_the_end_of_its_turn_and_the_thread_calls_back(host: str) -> None:
    async def on_host() -> list[str]:
        seen: list[str] = []
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Any] = loop.create_future()
        ticks = Ticks(loop)

        async def main() -> list[str]:
            for number in range(20):
                done = trio.Event()

                def answered(done: trio.Event = done) -> None:
                    seen.append("answered")
                    done.set()

                def wake(answered: Callable[[], None] = answered) -> None:
                    seen.append("woken")
                    threading.Thread(target=ticks.call_soon_threadsafe, args=(answered,)).start()

                ticks.at_end(wake)
                seen.append(str(number))
                await done.wait()
            return seen

        trio.lowlevel.start_guest_run(
            main,
            run_sync_soon_threadsafe=loop.call_soon_threadsafe,
            run_sync_soon_not_threadsafe=ticks.soon,
            done_callback=ended.set_result,
            host_uses_signal_set_wakeup_fd=True,
        )
        return list((await ended).unwrap())

    with asyncio.Runner(loop_factory=HOSTS[host]) as runner:
        seen = runner.run(asyncio.wait_for(on_host(), 20))
    assert seen == [each for number in range(20) for each in (str(number), "woken", "answered")]


@hosts
def test_a_mock_clock_jumps_only_when_nothing_else_is_left_to_do(host: str) -> None:
    async def main() -> Any:
        start_s = trio.current_time()
        event = trio.Event()
        asyncio.get_running_loop().call_later(0.005, event.set)
        with trio.move_on_after(3_600):
            await trio.sleep(1_800)
        jumped_s = trio.current_time() - start_s
        return round(jumped_s), event.is_set()

    # A threshold of zero: the host's own timers do not hold the jump back.
    assert run(main, host, clock=trio.testing.MockClock(autojump_threshold=0)) == (
        (1_800, False),
        True,
    )


@hosts
def test_tasks_woken_by_the_host_do_not_count_as_all_blocked(host: str) -> None:
    async def main() -> Any:
        order: list[str] = []
        event = trio.Event()

        async def waits() -> None:
            await event.wait()
            order.append("woken")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(waits)
            asyncio.get_running_loop().call_later(0.002, event.set)
            await trio.testing.wait_all_tasks_blocked(cushion=0.2)
            order.append("blocked")
        return order

    assert run(main, host) == (["woken", "blocked"], True)


@hosts
def test_an_error_of_main_comes_out(host: str) -> None:
    async def main() -> Any:
        await trio.sleep(0.001)
        raise LookupError("from main")

    with pytest.raises(LookupError, match="from main"):
        run(main, host)


def test_a_run_leaves_neither_a_reader_nor_a_timer_on_its_host() -> None:
    class Loop(asyncio.SelectorEventLoop):
        def __init__(self) -> None:
            super().__init__()
            self.watched: list[Any] = []
            self.timers: list[asyncio.TimerHandle] = []

        def add_reader(  # type: ignore[override]
            self, fd: Any, callback: Any, *args: Any
        ) -> None:
            self.watched.append(fd)
            super().add_reader(fd, callback, *args)

        def remove_reader(self, fd: Any) -> bool:
            self.watched.remove(fd)
            return super().remove_reader(fd)

        def call_at(  # type: ignore[override]
            self, when: float, callback: Any, *args: Any, context: Any = None
        ) -> asyncio.TimerHandle:
            self.timers.append(super().call_at(when, callback, *args, context=context))
            return self.timers[-1]

    loop = Loop()

    async def main() -> Any:
        woken = trio.Event()
        loop.call_soon(woken.set)
        with trio.move_on_after(3_600):
            await woken.wait()
        return len(loop.watched), len(loop.timers)

    async def on_host() -> Any:
        ended: asyncio.Future[Any] = loop.create_future()
        trio.lowlevel.start_guest_run(
            main,
            run_sync_soon_threadsafe=loop.call_soon_threadsafe,
            run_sync_soon_not_threadsafe=Ticks(loop).soon,
            done_callback=ended.set_result,
            host_uses_signal_set_wakeup_fd=True,
        )
        return (await ended).unwrap()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        watched, timers = runner.run(on_host())
        assert (watched, timers > 0) == (1, True)
        assert loop.watched == []
        now_s = loop.time()
        assert [each for each in loop.timers if not each.cancelled() and each.when() > now_s] == []
