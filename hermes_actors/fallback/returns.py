"""Tells when a datacentre's log that did not answer answers again, so that nobody waits longer.

Who cannot send backs off by itself, up to half a minute: each knows of its own topic only. That a
whole log is back is found out for all of them by one question a second.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress

import trio

from hermes_actors.log.base import Log, LogUnavailable

_ASK_EVERY_S = 1.0
_ANSWER_MAX_S = 1.0

Logs = Callable[[], Mapping[str, tuple[Log, str]]]
"""Of each datacentre that may take something the log, and a topic to ask it for."""


class Returns:
    """Run `watch` beside those who `rest`. It asks only while somebody rests.

    A log that answers and yet takes nothing wakes nobody: only one that had not answered before.
    """

    def __init__(self, logs: Logs) -> None:
        self._logs = logs
        self._resting = 0
        self._somebody_rests = trio.Event()
        self._is_back = trio.Event()

    async def rest(self, wait_s: float) -> None:
        """Return after that time, or when a log is back."""
        self._resting += 1
        self._somebody_rests.set()
        try:
            with trio.move_on_after(wait_s):
                await self._is_back.wait()
        finally:
            self._resting -= 1

    async def watch(self) -> None:
        """Ask, for ever."""
        silent: set[str] = set()
        while True:
            if not self._resting:
                # What was silent then may have come and gone since.
                silent.clear()
                self._somebody_rests = trio.Event()
                await self._somebody_rests.wait()
            await trio.sleep(_ASK_EVERY_S)
            asked = self._logs()
            answering = await self._answering(asked)
            if silent & answering:
                self._is_back.set()
                self._is_back = trio.Event()
            silent = asked.keys() - answering

    async def _answering(self, asked: Mapping[str, tuple[Log, str]]) -> set[str]:
        """The datacentres whose logs answer at once."""
        found: set[str] = set()

        async def ask(dc: str, log: Log, topic: str) -> None:
            with suppress(LogUnavailable):
                await log.describe_topic(topic)
                found.add(dc)

        with trio.move_on_after(_ANSWER_MAX_S):
            async with trio.open_nursery() as nursery:
                for dc, (log, topic) in asked.items():
                    nursery.start_soon(ask, dc, log, topic)
        return found
