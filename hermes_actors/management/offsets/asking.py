"""One question to the logs of all datacentres at once; a slow one does not delay the others."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar

import trio
from msgspec import Struct

from hermes_actors.log.base import Log, LogUnavailable, UnknownTopic

ASK_TIMEOUT_S = 5.0

T = TypeVar("T")


class Answers(Struct, Generic[T], frozen=True):
    """The answers by datacentre, and of each other datacentre why its log gave none; sorted."""

    known: dict[str, T]
    silent: dict[str, str]


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
    ) -> Answers[T]:
        """Ask the logs of these datacentres (None: all)."""
        known: dict[str, T] = {}
        silent: dict[str, str] = {}

        async def ask_one(dc: str) -> None:
            try:
                with trio.fail_after(timeout_s):
                    known[dc] = await question(self._by_dc[dc])
            except LogUnavailable as error:
                silent[dc] = f"its log cannot be reached: {error.message}"
            except UnknownTopic:
                silent[dc] = "its log does not hold the topic yet"
            except trio.TooSlowError:
                silent[dc] = f"its log did not answer within {timeout_s:.0f} s"

        async with trio.open_nursery() as nursery:
            for dc in self.datacenters if datacenters is None else datacenters:
                nursery.start_soon(ask_one, dc)
        return Answers(dict(sorted(known.items())), dict(sorted(silent.items())))
