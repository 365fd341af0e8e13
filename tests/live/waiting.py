"""Waiting for what another process does."""

import http.client
import threading
from collections.abc import Callable

WAIT_S = 60.0


def wait_until(holds: Callable[[], object], what: str) -> None:
    """Poll another process; a port that is not open yet counts as not holding."""
    pause = threading.Event()
    for _ in range(int(WAIT_S / 0.1)):
        try:
            if holds():
                return
        except (OSError, http.client.HTTPException):
            pass
        pause.wait(0.1)
    raise AssertionError(f"not within {WAIT_S:.0f} s: {what}")
