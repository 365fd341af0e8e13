"""The figures of each datacentre over the last minutes, for sparklines."""

from collections import deque
from collections.abc import Awaitable, Callable

import trio

from hermes_actors.status.figures import Figures

SAMPLES_MAX = 120
INTERVAL_S = 5.0


class History:
    """A figure of each datacentre every INTERVAL_S, at most SAMPLES_MAX of them.

    A datacentre that is no longer followed is forgotten.
    """

    def __init__(self, figures: Callable[[], Awaitable[dict[str, Figures]]]) -> None:
        self._figures = figures
        self._samples: dict[str, deque[Figures]] = {}

    def take(self, figures: dict[str, Figures]) -> None:
        """Add a sample."""
        before = self._samples
        self._samples = {dc: before.get(dc, deque(maxlen=SAMPLES_MAX)) for dc in figures}
        for dc, each in figures.items():
            self._samples[dc].append(each)

    def of(self, dc: str, figure: str) -> list[float]:
        """The values of a figure, the oldest first. Empty for an unknown datacentre."""
        return [getattr(each, figure) for each in self._samples.get(dc, ())]

    async def run(self, stop: trio.Event) -> None:
        """Take samples until `stop` is set. A trio coroutine."""
        while not stop.is_set():
            self.take(await self._figures())
            with trio.move_on_after(INTERVAL_S):
                await stop.wait()
