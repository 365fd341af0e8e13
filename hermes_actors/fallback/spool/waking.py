"""Wakes who cannot send when a log is back, a few at a time.

Who cannot send backs off by itself, up to half a minute: each knows of its own topic only. That a
whole log is back is found out for all of them by one question a second.
"""

import random
from collections.abc import Callable, Mapping
from contextlib import suppress

import trio

from hermes_actors.log.backoff import Backoff
from hermes_actors.log.base import Log, LogUnavailable

_FIRST_S = 0.1
_RETURNED_FIRST_S = 1.0
"""After a log was back: it may answer some seconds before it takes anything."""
_ASK_EVERY_S = 1.0
_ANSWER_MAX_S = 1.0
_TELL_EVERY_S = 30.0
"""A log that comes and goes is not tried by all each time it comes."""
AT_ONCE = 64
PAUSE_S = 0.01
"""So many go on at a time: there may be thousands, and a node has other things to do."""

Logs = Callable[[], Mapping[str, tuple[Log, str]]]
"""Of each datacentre that may take something the log, and a topic to ask it for."""


class Returns:
    """Run `watch` beside those who `rest`. It asks only while somebody rests.

    A log that answers and yet takes nothing wakes nobody: only one that had not answered before.
    `count` tells how often one was back: who was trying just then, and failed, knows by that.
    """

    def __init__(self, logs: Logs) -> None:
        self.count = 0
        self._logs = logs
        self._resting: dict[trio.Event, None] = {}
        self._somebody_rests = trio.Event()

    async def rest(self, wait_s: float) -> None:
        """Return after that time, or when a log is back."""
        is_back = trio.Event()
        self._resting[is_back] = None
        self._somebody_rests.set()
        try:
            with trio.move_on_after(wait_s):
                await is_back.wait()
        finally:
            del self._resting[is_back]

    async def watch(self) -> None:
        """Ask, for ever."""
        # Kept while nobody rests: whoever rests next may have tried before the log was back.
        silent: set[str] = set()
        next_s = 0.0
        while True:
            if not self._resting:
                self._somebody_rests = trio.Event()
                await self._somebody_rests.wait()
            await trio.sleep(_ASK_EVERY_S)
            asked = self._logs()
            answering = await self._answering(asked)
            silent |= asked.keys() - answering
            if silent & answering and trio.current_time() >= next_s:
                silent -= answering
                next_s = trio.current_time() + _TELL_EVERY_S
                await self._tell()

    async def _tell(self) -> None:
        self.count += 1
        resting = list(self._resting)
        for at in range(0, len(resting), AT_ONCE):
            for is_back in resting[at : at + AT_ONCE]:
                is_back.set()
            await trio.sleep(PAUSE_S)

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


class Pauses:
    """The pauses of one who tries again and again; they grow, and begin anew when a log is back.

    `tries` is how often in a row it has failed.
    """

    def __init__(self, returns: Returns, rng: random.Random, longest_s: float) -> None:
        self._returns = returns
        self._rng = rng
        self._longest_s = longest_s
        self._returned = returns.count
        self._backoff = Backoff(rng, _FIRST_S, longest_s)
        self.tries = 0

    async def rest(self) -> None:
        """Count a failure, and return when it is time to try again."""
        self.tries += 1
        if self._returned != self._returns.count:
            self._returned = self._returns.count
            self._backoff = Backoff(self._rng, _RETURNED_FIRST_S, self._longest_s)
        await self._returns.rest(self._backoff.next_s())

    def reset(self) -> None:
        """Begin anew after a success."""
        self.tries = 0
        self._returned = self._returns.count
        self._backoff = Backoff(self._rng, _FIRST_S, self._longest_s)
