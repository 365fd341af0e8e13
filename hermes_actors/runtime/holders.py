"""Names who holds a loop: the actor or task that runs, by its code and by who supervises it.

Only the thread that watches a loop asks, and only while it stands still: what runs is never slowed
down by it. The kinds are those of the source code, so they are few however many topics there are.
"""

import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from msgspec import Struct

FRAMES_MAX = 40
"""Of a stack, the innermost ones."""

UNSEEN = "unseen"
"""The kind of who held the loop for too short to be seen doing so."""

OTHER = "other"
"""The kind of what is no code of ours."""

_PACKAGE = "/hermes_actors/"
# What drives the loop, and what runs actors, is in every stack.
_DRIVERS = ("/hermes_actors/runtime/", "/hermes_actors/actors/")
_GUEST = "/hermes_actors/runtime/guest.py"
_TRIO = "/trio/_core/_run.py"
_RUNS_A_TASK = "unrolled_run"
_SUPERVISED = "Supervisor._supervise"
_DEPTH_MAX = 5_000


class StackFrame(Struct, frozen=True):
    """One frame of a stack: no values, no source text."""

    file: str
    line: int
    function: str
    """Its qualified name."""


class Holder(Struct, frozen=True, gc=False):
    """The actor, task or callback that held a loop. `kind` is its class or function, UNSEEN or
    OTHER; `path` the names by which it is supervised, outermost first, "" for what is not; `place`
    the line that it was at, "" where that is not known.
    """

    kind: str = UNSEEN
    path: str = ""
    place: str = ""

    def __str__(self) -> str:
        if self.kind == UNSEEN:
            return ""
        supervised = f" ({self.path})" if self.path else ""
        return f"{self.kind}{supervised}{f' in {self.place}' if self.place else ''}"


def frames_of(innermost: FrameType | None) -> list[StackFrame]:
    """The frames of a stack, innermost last."""
    frames: list[StackFrame] = []
    frame = innermost
    while frame is not None and len(frames) < _DEPTH_MAX:
        code = frame.f_code
        frames.append(StackFrame(code.co_filename, frame.f_lineno, code.co_qualname))
        frame = frame.f_back
    return frames[::-1]


def stack_lines(frames: Sequence[StackFrame]) -> list[str]:
    """Lines for a log, of the innermost frames."""
    return [f"  {each.file}:{each.line} {each.function}" for each in frames[-FRAMES_MAX:]]


def holder_of(frames: Sequence[StackFrame], path_of_task: Callable[[], str]) -> Holder:
    """Find the actor, task or callback that runs in this stack; `path_of_task` tells who supervises
    the task that trio runs now.
    """
    begun = [at for at, each in enumerate(frames) if _begins(each)]
    is_task = bool(begun) and frames[begun[-1]].function == _RUNS_A_TASK
    running = frames[begun[-1] + 1 :] if begun else frames
    ours = [each for each in running if _PACKAGE in each.file and not _is_driver(each)]
    kind = ours[0].function.partition(".")[0] if ours else OTHER
    return Holder(
        kind if kind.isidentifier() else OTHER,
        path_of_task() if is_task else "",
        place_of(ours or running),
    )


def place_of(frames: Sequence[StackFrame]) -> str:
    """The innermost frame, with its file from our package on."""
    if not frames:
        return ""
    last = frames[-1]
    _, separator, rest = last.file.rpartition(_PACKAGE)
    return f"{rest if separator else last.file}:{last.line} {last.function}"


def task_paths() -> Callable[[], str]:
    """Return what tells, from any thread, who supervises the task that runs in the calling thread.

    It uses a name that is private in trio; where that is missing, nobody is named.
    """
    run = sys.modules.get("trio._core._run")
    # This thread's own part of it: the same dict for as long as the thread lives.
    context: dict[str, Any] = getattr(getattr(run, "GLOBAL_RUN_CONTEXT", None), "__dict__", {})

    def path() -> str:
        names: list[str] = []
        task = context.get("task")
        while task is not None:
            if getattr(task.coro, "__qualname__", "") == _SUPERVISED:
                names.append(task.name)
            # It may end meanwhile.
            nursery = task.parent_nursery
            task = None if nursery is None else nursery.parent_task
        return " / ".join(reversed(names))

    return path


def _begins(frame: StackFrame) -> bool:
    """True where the loop's own frames end: what is within is what it runs."""
    is_trio = frame.function == _RUNS_A_TASK and frame.file.endswith(_TRIO)
    return is_trio or frame.file.endswith(_GUEST)


def _is_driver(frame: StackFrame) -> bool:
    return any(each in frame.file for each in _DRIVERS)
