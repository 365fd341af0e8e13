"""Where a task may go while nodes are restarted one after another: none moves more than twice.

What is on a node that has been restarted stays. What has moved and is on one that has not *waits*:
it will move once more, to a restarted one. For that there must be one without the subscription:
while any of its tasks waits, moves for balance leave one restarted node free of the others. Then
there is one at the next stop, and after that again, since each stop takes one of them at the most
and the node that comes back is one more.
"""

from hermes_actors.balancer.workload.books import Books, Task

MOVES_MAX = 2


def may_move(books: Books, task: Task, sink: int) -> bool:
    """True when the task may go to that node for balance."""
    moves = task.moves + (sink != task.was and not task.is_new)
    if moves > MOVES_MAX:
        return False
    if not books.is_restarting:
        return True
    is_settled = task.at == task.was or task.is_new
    if books.is_restarted[task.at] and is_settled and books.restarted < len(books.nodes):
        return False
    if books.is_restarted[sink]:
        return not _others_wait(books, task) or _leaves_one(books, task, 1)
    return not moves or (moves == 1 and _leaves_one(books, task, 0))


def may_place(books: Books, task: Task, node: int) -> bool:
    """Whether a task that has no node may get this one; if there is no such node, it has to."""
    return not (books.is_restarting and task.moves) or books.is_restarted[node] or task.is_new


def must_be_restarted(books: Books, task: Task) -> bool:
    """True when a task that has no node waits for a restarted one, of which there are some."""
    return (
        bool(books.restarted)
        and books.restarted < len(books.nodes)
        and not task.is_new
        and task.moves > 0
    )


def _others_wait(books: Books, task: Task) -> bool:
    return any(
        other.at >= 0
        and other is not task
        and not books.is_restarted[other.at]
        and other.moves_now > 0
        for other in books.of_work[task.work]
    )


def _leaves_one(books: Books, task: Task, taken: int) -> bool:
    """True when the subscription has a restarted node left when the task takes so many."""
    others = sum(
        other is not task and other.at >= 0 and books.is_restarted[other.at]
        for other in books.of_work[task.work]
    )
    return others + taken <= max(0, books.restarted - 1)
