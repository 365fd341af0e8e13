"""Keeps full garbage collections short on a node with many topics and subscriptions.

A full collection visits every container while nothing else runs. If one takes long, the surviving
objects are frozen (`gc.freeze`), and visited again only after ten minutes. Young objects are
collected less often: a few dozen open requests exceed Python's threshold, which cost a sixth of the
CPU.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

LONG_S = 0.02
ALL_INTERVAL_S = 600.0
YOUNG_MAX, MIDDLE_MAX = 10_000, 5


@contextmanager
def long_lived_set_aside(now_s: Callable[[], float]) -> Iterator[None]:
    """Use this collection policy for the whole process during the block. `now_s` is monotonic."""
    began_s = all_s = now_s()

    def collected(phase: str, info: dict[str, Any]) -> None:
        nonlocal began_s, all_s
        if info["generation"] < 2:
            return
        if phase == "start":
            began_s = now_s()
            if began_s - all_s >= ALL_INTERVAL_S:
                all_s = began_s
                gc.unfreeze()
        elif now_s() - began_s >= LONG_S:
            gc.freeze()

    before = gc.get_threshold()
    gc.callbacks.append(collected)
    gc.set_threshold(YOUNG_MAX, MIDDLE_MAX, before[2])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(collected)
