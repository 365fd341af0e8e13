"""When an open loop sends: times at a fixed rate, known before anything is answered."""

import ctypes
import os
import random
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator

_MONOTONIC = 1
_ABSOLUTE = 1
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC


def constant(rate_per_s: float, start_s: float) -> Iterator[float]:
    """Equal intervals."""
    number = 0
    while True:
        yield start_s + number / rate_per_s
        number += 1


def poisson(rate_per_s: float, start_s: float, rng: random.Random) -> Iterator[float]:
    """Independent arrivals: exponential intervals, as of many clients together."""
    due_s = start_s
    while True:
        due_s += rng.expovariate(rate_per_s)
        yield due_s


class _Times(ctypes.Structure):
    # Interval (unused: one shot) and the time to fire, in seconds and nanoseconds.
    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("at_s", ctypes.c_long),
        ("at_ns", ctypes.c_long),
    )


class Alarm:
    """Calls back at times of time.perf_counter(), at most about 0.1 ms late on an idle core.

    The loop's own timers round up to whole milliseconds, which would show in every latency. Linux
    only.
    """

    def __init__(self, loop: AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._file = self._libc.timerfd_create(_MONOTONIC, _FLAGS)
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        loop.add_reader(self._file, callback)

    def set(self, when_s: float) -> None:
        """Fire once at this time, at once if it has passed. Replaces an earlier setting."""
        ns = max(1, int(when_s * 1e9))
        times = _Times(0, 0, ns // 1_000_000_000, ns % 1_000_000_000)
        self._libc.timerfd_settime(self._file, _ABSOLUTE, ctypes.byref(times), None)

    def close(self) -> None:
        """Stop."""
        self._loop.remove_reader(self._file)
        os.close(self._file)
