from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hermes_actors.log.base import Log
from hermes_actors.log.memory import MemoryLog
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack


class SettableClock:
    def __init__(self) -> None:
        self.wall_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic_s(self) -> float:
        return 0.0


class LogUnderTest:
    """One kind of log: opened, closed and opened again with what it stored; its clock is set by
    the test, and `expire` does what its retention would do now."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.kind = kind
        self.clock = SettableClock()
        self._directory = directory
        self._memory = MemoryLog("dc1", self.clock)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Log]:
        if self.kind == "memory":
            yield self._memory
        else:
            from hermes_actors.log.embedded import open_embedded_log

            async with open_embedded_log(self._directory, "dc1", self.clock) as log:
                yield log

    async def expire(self, log: Any) -> None:
        done: Awaitable[None] | None = log.expire(self.clock.now_ms())
        if done is not None:
            await done


KINDS = ["memory", "embedded"]


@pytest.fixture(params=KINDS)
def under_test(request: pytest.FixtureRequest, tmp_path: Path) -> LogUnderTest:
    return LogUnderTest(request.param, tmp_path / "log")


@pytest.fixture(scope="session")
def make_log_under_test() -> Callable[[str, Path], LogUnderTest]:
    return LogUnderTest


@pytest.fixture
def record() -> Callable[..., Record]:
    def make(
        value: bytes,
        timestamp_ms: int = 1_000,
        key: bytes | None = None,
        headers: tuple[tuple[str, bytes], ...] = (),
    ) -> Record:
        return Record(key, value, headers, timestamp_ms)

    return make


@pytest.fixture
def write() -> Callable[..., Awaitable[list[int]]]:
    """Append one-byte-valued records and give their offsets; each must be stored."""

    async def append(
        log: Log, topic: str, values: list[bytes], partition: int = 0, timestamp_ms: int = 1_000
    ) -> list[int]:
        batch = [Record(None, value, (), timestamp_ms) for value in values]
        outcomes = await log.append(topic, partition, batch, Ack.ALL)
        return [outcome.offset for outcome in outcomes]  # type: ignore[union-attr]

    return append
