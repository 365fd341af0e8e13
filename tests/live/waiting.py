"""Waits for other processes."""

import http.client
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
WAIT_S = 180.0


def wait_until(look: Callable[[], T], what: str) -> T:
    """Call `look` until it returns something, and return that.

    A port that is not open yet counts as nothing.
    """
    pause = threading.Event()
    for _ in range(int(WAIT_S / 0.1)):
        try:
            if found := look():
                return found
        except (OSError, http.client.HTTPException):
            pass
        pause.wait(0.1)
    raise AssertionError(f"not within {WAIT_S:.0f} s: {what}")
