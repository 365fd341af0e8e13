"""Times the turns of an event loop in a process that finds this file on its PYTHONPATH.

Replaces uvloop, whose turns cannot be observed, by asyncio's own loop. Long turns are written to
the file named by BENCHMARK_TURNS, one per line, in ms. `turn` is the CPU time of one turn. `held`
is how long a callback was held up by its own process: it neither ran nor waited for a CPU, but for
the interpreter, for instance.
"""

import asyncio
import os
import sys
import time
from asyncio.base_events import BaseEventLoop
from pathlib import Path
from typing import Any

_LONG_S = 0.003


def _waited_s() -> float:
    """How long this thread could have run but had no CPU; 0 if the system does not say."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text("ascii").split()[1]) / 1e9
    except OSError:
        return 0.0


def _measure(path: str) -> None:
    patched: Any = BaseEventLoop
    loop, handle = patched._run_once, asyncio.Handle._run

    def note(kind: str, seconds: float) -> None:
        if seconds > _LONG_S:
            with Path(path).open("a") as file:
                file.write(f"{time.time():.3f} {kind} {seconds * 1_000:.2f}\n")

    def run_once(self: Any) -> None:
        began_s = time.thread_time()
        loop(self)
        note("turn", time.thread_time() - began_s)

    def run(self: Any) -> None:
        began_s, cpu_s, waited_s = time.perf_counter(), time.thread_time(), _waited_s()
        handle(self)
        spent_s = time.thread_time() - cpu_s + _waited_s() - waited_s
        note("held", time.perf_counter() - began_s - spent_s)

    patched._run_once = run_once
    asyncio.Handle._run = run  # type: ignore[method-assign]
    sys.modules["uvloop"] = None  # type: ignore[assignment]


if "BENCHMARK_TURNS" in os.environ:
    _measure(os.environ["BENCHMARK_TURNS"])
