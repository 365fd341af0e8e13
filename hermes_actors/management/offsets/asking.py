"""One question to the logs of all datacentres at once; none of them holds up another's answer."""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import trio
from msgspec import Struct

from hermes_actors.log.base import Log, LogUnavailable, UnknownTopic

ASK_TIMEOUT_S = 5.0

T = TypeVar("T")


class SilentLog(Struct, frozen=True):
    """Why a datacentre's log did not answer, for people."""

    reason: str


class Logs:
    """The logs of all datacentres."""

    def __init__(self, logs: Iterable[Log]) -> None:
        self._by_dc = {log.dc: log for log in logs}

    @property
    def datacenters(self) -> list[str]:
        """Their names, sorted."""
        return sorted(self._by_dc)

    async def ask(
        self,
        question: Callable[[Log], Awaitable[T]],
        datacenters: Iterable[str] | None = None,
        timeout_s: float = ASK_TIMEOUT_S,
    ) -> dict[str, T | SilentLog]:
        """For each datacentre (None: all), sorted, its log's answer, or why there was none."""
        wanted = self.datacenters if datacenters is None else sorted(datacenters)
        answers: dict[str, T | SilentLog] = {}

        async def ask_one(dc: str) -> None:
            answers[dc] = await _answer(question, self._by_dc[dc], timeout_s)

        async with trio.open_nursery() as nursery:
            for dc in wanted:
                nursery.start_soon(ask_one, dc)
        return {dc: answers[dc] for dc in wanted}


async def _answer(
    question: Callable[[Log], Awaitable[T]], log: Log, timeout_s: float
) -> T | SilentLog:
    try:
        with trio.move_on_after(timeout_s):
            return await question(log)
    except LogUnavailable as error:
        return SilentLog(f"its log cannot be reached: {error.message}")
    except UnknownTopic:
        return SilentLog("its log does not hold the topic yet")
    return SilentLog(f"its log did not answer within {timeout_s:.0f} s")
