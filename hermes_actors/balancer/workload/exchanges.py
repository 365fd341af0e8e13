"""The three kinds of steps between two nodes: give a task, swap two, one for several."""

from bisect import bisect_left, bisect_right

from msgspec import Struct

from hermes_actors.balancer.workload.books import Books, Task
from hermes_actors.balancer.workload.restarts import may_move

_LOOKED_AT = 192
"""Of how many tasks of a node a swap is tried: a step takes at most a few milliseconds."""
_NEXT = 3
"""How many neighbours of the fitting weight are tried."""
_SEVERAL_MAX = 8
_FREE = 0.1
"""How many moves one counts that is none."""


class ShiftBounds(Struct, frozen=True, gc=False):
    """The bounds of a shift from node `source` to node `sink`, in grains: `least` to `most`.

    Shifting x lowers the sum of load² / target by curve · (2 · level · x − x²): best is `level`.
    Tasks that moved lately may be moved only if that `is_forced`.
    """

    source: int
    sink: int
    least: float
    most: float
    level: float
    curve: float
    is_forced: bool

    def worth(self, shifted: float, moves: float) -> float:
        """How much shifting so much improves for each task that it moves."""
        return self.curve * (2 * self.level - shifted) * shifted / moves


class Step(Struct, frozen=True):
    """Tasks that go from one node to another, and those that come back for them."""

    bounds: ShiftBounds
    gone: Task
    back: tuple[Task, ...]
    shifted: int
    worth: float

    def apply(self, books: Books) -> None:
        """Move the tasks."""
        source, sink = self.bounds.source, self.bounds.sink
        for task in (self.gone, *self.back):
            books.take(task)
        books.put(self.gone, sink)
        for task in self.back:
            books.put(task, source)

    def undo(self, books: Books) -> None:
        """Move the tasks back."""
        source, sink = self.bounds.source, self.bounds.sink
        for task in (self.gone, *self.back):
            books.take(task)
        books.put(self.gone, source)
        for task in self.back:
            books.put(task, sink)

    @property
    def cost(self) -> int:
        """How many of its tasks could have stayed where they were by the last plan."""
        source, sink = self.bounds.source, self.bounds.sink
        return (self.gone.home == source) + sum(task.home == sink for task in self.back)


def _may_go(books: Books, task: Task, sink: int, is_forced: bool) -> bool:
    return (
        (task.is_stable or is_forced)
        and task.work not in books.works[sink]
        and may_move(books, task, sink)
    )


def _step(bounds: ShiftBounds, gone: Task, back: tuple[Task, ...]) -> Step | None:
    shifted = gone.weight - sum(task.weight for task in back)
    if not bounds.least <= shifted <= bounds.most:
        return None
    # A task that has to start anyway, because it is new or its node is gone, costs no move.
    cost = (gone.home == bounds.source) + sum(task.home == bounds.sink for task in back)
    worth = bounds.worth(shifted, cost or _FREE)
    return Step(bounds, gone, back, shifted, worth) if worth > 0 else None


def give(books: Books, bounds: ShiftBounds) -> Step | None:
    """The task of the most worth that may go."""
    if not books.has_room(bounds.sink):
        return None
    tasks, best = books.on[bounds.source], None
    found = 0
    for at in range(bisect_right(tasks, (int(bounds.most), len(books.tasks))) - 1, -1, -1):
        weight, number = tasks[at]
        if weight < bounds.least or found == _NEXT:
            break
        task = books.tasks[number]
        if _may_go(books, task, bounds.sink, bounds.is_forced):
            found += 1
            step = _step(bounds, task, ())
            if step is not None and (best is None or step.worth > best.worth):
                best = step
    return best


def swap(books: Books, bounds: ShiftBounds) -> Step | None:
    """The pair of the most worth: one goes, a lighter one comes back."""
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
        for at in range(max(0, first - 1), min(len(others), first + _NEXT)):
            shifted = weight - others[at][0]
            if not bounds.least <= shifted <= bounds.most:
                continue
            other = books.tasks[others[at][1]]
            if _may_go(books, other, bounds.source, is_forced=False):
                step = _step(bounds, task, (other,))
                if step is not None and (best is None or step.worth > best.worth):
                    best = step
    return best


def several(books: Books, bounds: ShiftBounds) -> Step | None:
    """Return the step of the most worth in which one goes and several light ones come back."""
    best: Step | None = None
    wished = min(bounds.level, bounds.most)
    for weight, number in _heaviest(books.on[bounds.source])[:32]:
        task = books.tasks[number]
        if not _may_go(books, task, bounds.sink, bounds.is_forced):
            continue
        back: list[Task] = []
        missing = weight - wished
        for other_weight, other_number in reversed(books.on[bounds.sink]):
            other = books.tasks[other_number]
            if other_weight <= missing and _may_go(books, other, bounds.source, is_forced=False):
                back.append(other)
                missing -= other_weight
            if missing <= 0 or len(back) == _SEVERAL_MAX:
                break
        has_room = len(books.on[bounds.source]) + len(back) - 1 <= books.tasks_max
        step = _step(bounds, task, tuple(back)) if len(back) > 1 and has_room else None
        if step is not None and (best is None or step.worth > best.worth):
            best = step
    return best


def _heaviest(tasks: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The heaviest of a node, and an even sample of the others; the heaviest first."""
    if len(tasks) <= _LOOKED_AT:
        return tasks[::-1]
    half = _LOOKED_AT // 2
    others = tasks[-half - 1 :: -(len(tasks) // half + 1)]
    return tasks[: -half - 1 : -1] + others
