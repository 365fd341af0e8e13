"""Places tasks that have no node: the heaviest first, each on the node that it fills least.

Graham's longest processing time first (1969), with nodes of different capacity, a limit of tasks
per node, and a subscription's owners on distinct nodes.
"""

from collections.abc import Iterator

from hermes_actors.balancer.workload.books import Books, Task

_TASKS_IN_A_STEP = 64


def place(books: Books) -> Iterator[None]:
    """Give each task without a node to one; yields every few hundred microseconds.

    There is room for all, as `demand` ensures. If the only nodes with room already own the
    subscription, another task makes way.
    """
    waiting = [task for task in books.tasks if task.at < 0]
    # Sorting is stable: equal tasks keep the order of their numbers.
    waiting.sort(key=lambda task: -task.weight)
    yield
    load, capacity = books.load, books.capacity
    numbers = range(len(books.nodes))
    for count, task in enumerate(waiting):
        work, weight = task.work, task.weight
        best, node = (0.0, 0), -1
        for each in numbers:
            if work not in books.works[each] and books.has_room(each):
                filled = (load[each] + weight) / capacity[each], len(books.on[each])
                if node < 0 or filled < best:
                    best, node = filled, each
        books.put(task, node if node >= 0 else _room_made(books, task))
        if count % _TASKS_IN_A_STEP == 0:
            yield


def _room_made(books: Books, task: Task) -> int:
    """Make room on a full node by moving a task to a node with room that owns the subscription
    already. Returns the full node.

    Such a task always exists, because the full node has more tasks than the other.
    """
    numbers = range(len(books.nodes))
    other = min((len(books.on[each]), each) for each in numbers if books.has_room(each))[1]
    full = min(
        (books.load[each] / books.capacity[each], each)
        for each in numbers
        if task.work not in books.works[each]
    )[1]
    lightest = next(
        books.tasks[number]
        for _, number in books.on[full]
        if books.tasks[number].work not in books.works[other]
    )
    books.move(lightest, other)
    books.made_way.append(lightest)
    return full
