"""Keeps the garbage collector from looking again and again at what lives long.

A full collection looks at every container in one go, nobody else has a turn meanwhile, and a node
that is given hundreds of subscriptions has one each time that its objects are a quarter more. What
a long one has found alive is set aside (`gc.freeze`), so the next looks at what came since. Nothing
is set aside for good: what has become garbage there is found by the first full collection that
comes ten minutes later.

Young objects are looked at less often too: a few dozen requests under way are more than Python's
700 objects, so nearly each request would cause a collection, and all of them a sixth of the CPU.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

LONG_S = 0.02
"""A full collection above it sets aside what it leaves."""
ALL_INTERVAL_S = 600.0
"""After so long a full collection looks at everything again."""
YOUNG_MAX, MIDDLE_MAX = 10_000, 5
"""So many new objects are looked at together, and so often before those that were left are: half a
millisecond, and some.
"""


class LongLived:
    """A callback of the collector. `now_s` is monotonic; the rest are the collector's own."""

    def __init__(
        self,
        now_s: Callable[[], float],
        freeze: Callable[[], None] = gc.freeze,
        unfreeze: Callable[[], None] = gc.unfreeze,
    ) -> None:
        self._now_s = now_s
        self._freeze = freeze
        self._unfreeze = unfreeze
        self._began_s = 0.0
        self._all_s = now_s()

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        """A collection begins or has ended."""
        if info["generation"] < 2:
            return
        now_s = self._now_s()
        if phase == "start":
            self._began_s = now_s
            if now_s - self._all_s >= ALL_INTERVAL_S:
                self._all_s = now_s
                self._unfreeze()
        elif now_s - self._began_s >= LONG_S:
            self._freeze()


@contextmanager
def long_lived_set_aside(now_s: Callable[[], float]) -> Iterator[None]:
    """The collector works so for the length of the block; for the whole process."""
    callback = LongLived(now_s)
    before = gc.get_threshold()
    gc.callbacks.append(callback)
    gc.set_threshold(YOUNG_MAX, MIDDLE_MAX, before[2])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(callback)
