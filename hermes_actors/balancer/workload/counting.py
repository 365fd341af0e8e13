"""Equal counts: the strategy that knows no weights. It moves the fewest tasks that suffice."""

from collections.abc import Iterator

from hermes_actors.balancer.workload.books import Books, Task


def even_out(books: Books, budget: int) -> Iterator[Task]:
    """Move a task from the node with the most to the one with the fewest, until they differ by one
    at most or the budget is used up; yields each moved task.

    The fewest moves: each takes one from a node above the mean and gives it to one below.
    """
    numbers = range(len(books.nodes))
    while budget > 0:
        most = max(numbers, key=lambda each: (len(books.on[each]), -each))
        fewest = min(numbers, key=lambda each: (len(books.on[each]), each))
        if len(books.on[most]) - len(books.on[fewest]) <= 1:
            return
        has = books.works[fewest]
        movable = (
            books.tasks[number]
            for work, number in sorted(books.works[most].items())
            if work not in has
        )
        # Those that have to start anyway cost nothing.
        task = min(movable, key=lambda each: (each.home == most, each.number))
        budget -= task.home == most
        books.move(task, fewest)
        yield task
