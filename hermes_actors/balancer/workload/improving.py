"""Improves the balance after placing, in few moves that bring each node near its target.

A local search in the manner of list scheduling with interchanges (Finn and Horowitz 1979). A node
far above its target gives a task to one below, or swaps one for a lighter one. A step is judged
by how much it lowers the sum of load² / target per moved task. Each step lowers the sum, so the
search ends. No step loads a node, relative to its capacity, more than the busiest one is.
"""

from collections.abc import Iterator

from msgspec import Struct

from hermes_actors.balancer.workload.books import Books
from hermes_actors.balancer.workload.exchanges import ShiftBounds, Step, better, give, swap

NEAR = 0.01
"""A receiving node is filled to at most this part above its target."""
LOW = 0.02
"""A giving node keeps its target, except for this part."""
_STARVED_AT_ONCE = 0.2
"""A node this far below its target may also take tasks that have just moved: it has just joined."""
_RECEIVERS = 16
_PARTNERS = 4
_ALIKE = 0.005
_SMALLEST = 0.001
"""The least that a step must shift, as a part of the giving node's target."""
_SMALLEST_ROUGH = 0.00001
"""Used when no larger shift is possible: beside a task that fills its node, all others are small.
"""


class Tolerance(Struct, frozen=True):
    """How far a node may be above or below its target before it is improved."""

    uneven: float
    starved: float


def improve(books: Books, target: list[float], limits: Tolerance) -> Iterator[Step | None]:
    """Apply steps until all nodes are within their limits or no step helps, and yield each step.

    Yields None when no step was applied, so that each iteration is short.
    """
    # Nodes that no step helps at present; any step changes that.
    stuck: set[int] = set()
    # A starved node is filled to its target, not just to the limit of starvation.
    hungry = [
        load < (1 - limits.starved) * part for load, part in zip(books.load, target, strict=True)
    ]
    looks = 20 * len(books.nodes) + 2 * len(books.tasks)
    while looks > 0:
        looks -= 1
        node, is_above = _worst(books, target, limits, hungry, stuck)
        if node < 0:
            return
        if is_above:
            step = relieve(books, target, node, limits.uneven)
        else:
            step = fill(books, target, node)
        if step is None:
            stuck.add(node)
        else:
            step.apply(books)
            stuck.clear()
        yield step


def _worst(
    books: Books, target: list[float], limits: Tolerance, hungry: list[bool], stuck: set[int]
) -> tuple[int, bool]:
    """Return the node to improve next, and whether its load is too high; -1 if all are within their
    limits.
    """
    most, fewest = -1, -1
    above, below = 1 + limits.uneven, 1.0
    for node, (load, part) in enumerate(zip(books.load, target, strict=True)):
        ratio = load / part
        if node in stuck:
            continue
        if ratio > above:
            most, above = node, ratio
        elif ratio < below and ratio < 1 - (LOW if hungry[node] else limits.starved):
            fewest, below = node, ratio
    return (most, True) if most >= 0 else (fewest, False)


def relieve(books: Books, target: list[float], node: int, uneven: float) -> Step | None:
    """Return the best step per moved task that relieves this node, or None.

    Another node with about the same excess may be relieved first, if that needs fewer moves.
    """
    load = books.load
    receivers = sorted(range(len(target)), key=lambda each: (load[each] / target[each], each))
    least = max(1 + uneven, load[node] / target[node] - _ALIKE)
    alike = [each for each in receivers if load[each] > least * target[each]]
    busiest = _busiest(books)
    best: Step | None = None
    for each in reversed(alike):
        for other in receivers[: _PARTNERS if len(alike) > _PARTNERS else _RECEIVERS]:
            bounds = _bounds(books, target, each, other, busiest)
            if bounds.most > 0:
                best = better(best, give(books, bounds))
    if best is not None and best.shifted >= 0.5 * (load[node] - target[node]):
        return best
    for other in receivers[:_PARTNERS]:
        bounds = _bounds(books, target, node, other, busiest)
        if bounds.most > 0:
            best = better(best, swap(books, bounds))
    if best is None:
        best = _rougher(books, target, node, receivers, busiest)
    return best


def _rougher(
    books: Books, target: list[float], node: int, receivers: list[int], busiest: float
) -> Step | None:
    """Return the best step that improves both nodes, if none makes both good."""
    best: Step | None = None
    for other in receivers[:_PARTNERS]:
        bounds = _bounds(books, target, node, other, busiest, is_rough=True)
        if bounds.most > 0:
            for kind in (give, swap):
                best = better(best, kind(books, bounds))
    return best


def fill(books: Books, target: list[float], node: int) -> Step | None:
    """Return the step that gives this node, which has too little, the most; or None."""
    load = books.load
    donors = sorted(
        (each for each in range(len(target)) if each != node),
        key=lambda each: (-load[each] / target[each], each),
    )
    busiest = _busiest(books)
    best: Step | None = None
    for is_rough in (False, True):
        for donor in donors:
            bounds = _bounds(books, target, donor, node, busiest, is_rough=is_rough)
            if bounds.most > 0:
                best = better(best, give(books, bounds))
        if best is not None:
            return best
    return None


def _bounds(
    books: Books,
    target: list[float],
    node: int,
    other: int,
    busiest: float,
    *,
    is_rough: bool = False,
) -> ShiftBounds:
    """Return the bounds of a shift between two nodes; `busiest` is computed from the current
    books.
    """
    load = books.load
    above, below = load[node] / target[node], load[other] / target[other]
    curve = 1 / target[node] + 1 / target[other]
    level = (above - below) / curve
    # A shift of twice the level would only swap their loads.
    most = 1.9 * level
    if is_rough:
        # The receiver must end clearly below the giver's old load; otherwise nothing is gained.
        most = min(most, (below + 0.9 * (above - below)) * target[other] - load[other])
    else:
        keeps, takes = (1 - LOW) * target[node], (1 + NEAR) * target[other]
        most = min(most, load[node] - keeps, takes - load[other])
    most = min(most, busiest * books.capacity[other] - load[other])
    return ShiftBounds(
        node,
        other,
        least=(_SMALLEST_ROUGH if is_rough else _SMALLEST) * target[node],
        most=most,
        level=level,
        curve=curve,
        is_forced=below < 1 - _STARVED_AT_ONCE,
    )


def _busiest(books: Books) -> float:
    """The greatest load of a node relative to its capacity."""
    return max(load / part for load, part in zip(books.load, books.capacity, strict=True))
