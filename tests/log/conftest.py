import asyncio  # noqa: TID251 -- the loop whose time jumps
import selectors
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from os import getpid
from typing import Any

import pytest

from hermes_actors.config import KafkaClusterConfig, KafkaConfig
from hermes_actors.log.kafka.log import KafkaLog, open_kafka_log
from hermes_actors.runtime.clock import SystemClock

_names = count()


@pytest.fixture
def fresh() -> Callable[[str], str]:
    """A name that no other test of this run has."""
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
    """Waits for nothing: what would be waited passes at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "nothing is left that could wake the loop"
        self.now_s += max(timeout, 0)
        return super().select(0)


class JumpingLoop(asyncio.SelectorEventLoop):
    """Its time passes when nothing else is left to do, and at once."""

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
    """Makes a loop that waits for nothing; it is a clock as well."""
    return JumpingLoop
