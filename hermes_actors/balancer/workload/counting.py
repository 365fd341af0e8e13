"""Equal counts: the strategy that knows no weights. It moves the fewest tasks that suffice."""

from collections.abc import Iterator

from hermes_actors.balancer.workload.books import Books, Task
from hermes_actors.balancer.workload.restarts import may_move


def even_out(books: Books, budget: int) -> Iterator[Task]:
    """Move a task from the node with the most to the one with the fewest, until they differ by one
    at most, the budget is used up or a restart forbids it; yields each moved task.

    The fewest moves: each takes one from a node above the mean and gives it to one below.
    """
    while budget > 0:
        step = _step(books)
        if step is None:
            return
        task, fewest = step
        budget -= task.home == task.at
        books.move(task, fewest)
        yield task


def _step(books: Books) -> tuple[Task, int] | None:
    """The task to move, and where to: from the fullest to the emptiest, of those that may."""
    numbers = range(len(books.nodes))
    counts = [len(tasks) for tasks in books.on]
    for most in sorted(numbers, key=lambda each: (-counts[each], each)):
        for fewest in sorted(numbers, key=lambda each: (counts[each], each)):
            if counts[most] - counts[fewest] <= 1:
                break
            has = books.works[fewest]
            movable = (
                books.tasks[number]
                for work, number in sorted(books.works[most].items())
                if work not in has and may_move(books, books.tasks[number], fewest)
            )
            # Those that have to start anyway cost nothing.
            task = min(movable, key=lambda each: (each.home == most, each.number), default=None)
            if task is not None:
                return task, fewest
    return None
