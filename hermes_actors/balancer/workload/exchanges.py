"""The two kinds of steps between two nodes: give a task, or swap two."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from msgspec import Struct

from hermes_actors.balancer.workload.books import Books, Task

_LOOKED_AT = 192
"""How many tasks of a node are considered for a swap, so that a step takes a few milliseconds at
most.
"""
_NEXT = 3
"""How many tasks near the ideal weight are tried."""
_FREE = 0.1
"""The cost, in moves, of a step that moves no task away from its home."""


class ShiftBounds(Struct, frozen=True, gc=False):
    """The bounds of a shift from node `source` to node `sink`, in grains: `least` to `most`.

    Shifting x lowers the sum of load² / target by curve · (2 · level · x − x²), so `level` is best.
    Tasks that moved recently may move only if `is_forced`.
    """

    source: int
    sink: int
    least: float
    most: float
    level: float
    curve: float
    is_forced: bool


class Step(Struct, frozen=True):
    """A task that goes from one node to another, and a lighter one that comes back for it.

    `cost` counts those that leave their homes; `worth` is the improvement per unit of cost.
    """

    bounds: ShiftBounds
    gone: Task
    back: Task | None
    shifted: int
    cost: int
    worth: float

    def apply(self, books: Books) -> None:
        """Move the tasks."""
        self._exchange(books, self.bounds.source, self.bounds.sink)

    def undo(self, books: Books) -> None:
        """Move the tasks back."""
        self._exchange(books, self.bounds.sink, self.bounds.source)

    def _exchange(self, books: Books, source: int, sink: int) -> None:
        books.take(self.gone)
        if self.back is not None:
            books.move(self.back, source)
        books.put(self.gone, sink)


def better(one: Step | None, other: Step | None) -> Step | None:
    """The step of more worth; the first one if they are about equal."""
    if one is None or (other is not None and other.worth > one.worth * (1 + 1e-9)):
        return other
    return one


def give(books: Books, bounds: ShiftBounds) -> Step | None:
    """The best step that gives one task."""
    if not books.has_room(bounds.sink):
        return None
    tasks, best, found = books.on[bounds.source], None, 0
    for at in range(bisect_right(tasks, (int(bounds.most), len(books.tasks))) - 1, -1, -1):
        weight, number = tasks[at]
        if weight < bounds.least or found == _NEXT:
            break
        task = books.tasks[number]
        if _may_go(books, task, bounds.sink, bounds.is_forced):
            found += 1
            best = better(best, _step(bounds, task))
    return best


def swap(books: Books, bounds: ShiftBounds) -> Step | None:
    """The best step that swaps a task for a lighter one."""
    best: Step | None = None
    others = books.on[bounds.sink]
    wished = min(bounds.level, bounds.most)
    for weight, number in _heaviest(books.on[bounds.source]):
        if weight <= bounds.least:
            break
        task = books.tasks[number]
        if not _may_go(books, task, bounds.sink, bounds.is_forced):
            continue
        first = bisect_left(others, (int(weight - wished), -1))
        for _, number in others[max(0, first - 1) : first + _NEXT]:
            other = books.tasks[number]
            if _may_go(books, other, bounds.source, is_forced=False):
                best = better(best, _step(bounds, task, other))
    return best


def _may_go(books: Books, task: Task, sink: int, is_forced: bool) -> bool:
    return (task.is_stable or is_forced) and task.work not in books.works[sink]


def _step(bounds: ShiftBounds, gone: Task, back: Task | None = None) -> Step | None:
    shifted = gone.weight - (0 if back is None else back.weight)
    if not bounds.least <= shifted <= bounds.most:
        return None
    cost = (gone.home == bounds.source) + (back is not None and back.home == bounds.sink)
    worth = bounds.curve * (2 * bounds.level - shifted) * shifted / (cost or _FREE)
    return Step(bounds, gone, back, shifted, cost, worth) if worth > 0 else None


def _heaviest(tasks: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The heaviest tasks of a node and an even sample of the others, heaviest first."""
    half = _LOOKED_AT // 2
    if len(tasks) <= _LOOKED_AT:
        yield from reversed(tasks)
    else:
        yield from tasks[: -half - 1 : -1]
        yield from tasks[-half - 1 :: -(len(tasks) // half + 1)]
