import asyncio  # noqa: TID251 -- the loop whose time jumps
import selectors
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from os import getpid
from typing import Any

import pytest
import trio

from hermes_actors.config import KafkaClusterConfig, KafkaConfig
from hermes_actors.log.kafka.log import KafkaLog, open_kafka_log
from hermes_actors.runtime.clock import SystemClock
from hermes_actors.runtime.ticks import Ticks

_names = count()


@pytest.fixture
def fresh() -> Callable[[str], str]:
    """Names that no other test of this run uses."""
    number = next(_names)
    return lambda name: f"log-{getpid()}-{number}-{name}"


@pytest.fixture
def open_log() -> Callable[..., AbstractAsyncContextManager[KafkaLog]]:
    """`open_log(bootstrap_servers, **settings)`: the log over a broker."""

    @asynccontextmanager
    async def open_one(servers: list[str], **settings: Any) -> AsyncIterator[KafkaLog]:
        settings = {"request_timeout_ms": 20_000, **settings}
        cluster = KafkaClusterConfig(list(servers))
        async with open_kafka_log("dc1", cluster, KafkaConfig(**settings), SystemClock()) as log:
            yield log

    return open_one


class JumpingSelector(selectors.DefaultSelector):
    """Never waits: the waiting time passes at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "nothing is left that could wake the loop"
        self.now_s += max(timeout, 0)
        return super().select(0)


class JumpingLoop(asyncio.SelectorEventLoop):
    """Its time passes at once, when nothing else is left to do."""

    def __init__(self) -> None:
        self._jumping = JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s

    def monotonic_s(self) -> float:
        return self._jumping.now_s

    def boottime_s(self) -> float:
        return self.monotonic_s()


@pytest.fixture
def jumping_loop() -> type[JumpingLoop]:
    """The class of a loop that never waits; the loop is also a clock."""
    return JumpingLoop


class LoopClock(trio.abc.Clock):
    """A guest's clock that is its host's."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def start_clock(self) -> None:
        pass

    def current_time(self) -> float:
        return self._loop.time()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return deadline - self.current_time()


@pytest.fixture
def run_as_guest_of() -> Callable[..., Any]:
    """`run_as_guest_of(loop, main)`: run a trio main in that loop, with its time."""

    def run(loop: asyncio.AbstractEventLoop, main: Callable[[], Awaitable[Any]]) -> Any:
        async def host() -> Any:
            ended: asyncio.Future[Any] = loop.create_future()
            trio.lowlevel.start_guest_run(
                main,
                run_sync_soon_threadsafe=loop.call_soon_threadsafe,
                run_sync_soon_not_threadsafe=Ticks(loop).soon,
                done_callback=ended.set_result,
                host_uses_signal_set_wakeup_fd=True,
                clock=LoopClock(loop),
            )
            return (await ended).unwrap()

        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            return runner.run(host())

    return run
