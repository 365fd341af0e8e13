"""One round of planning: assigns owners, with as few changes as balance needs, and a reason for
each.

The same cluster gives the same plan, whatever the order of its nodes and subscriptions. Planning
again after it changes nothing.
"""

from collections.abc import Generator

from msgspec import Struct

from hermes_actors.balancer.workload.books import GRAINS, Books, Task
from hermes_actors.balancer.workload.demand import OwnerDemand, demands
from hermes_actors.balancer.workload.exchanges import Step
from hermes_actors.balancer.workload.improving import NEAR, Tolerance, improve
from hermes_actors.balancer.workload.placing import place
from hermes_actors.balancer.workload.problem import Planned, Problem, Work
from hermes_actors.balancer.workload.reasons import RoundReasons
from hermes_actors.balancer.workload.shares import whole_units
from hermes_actors.balancer.workload.slots import divide
from hermes_actors.balancer.workload.targets import targets
from hermes_actors.coordination.commands import Assignment, Target
from hermes_actors.runtime.turns import at_once

_WORKS_IN_A_STEP = 32
_PASSES_MAX = 20


def plan(problem: Problem) -> Planned:
    """Return the changes of a round, without pauses."""
    return at_once(plan_in_steps(problem))


def plan_in_steps(problem: Problem) -> Generator[None, None, Planned]:
    """Return the changes of a round. Each yield is a pause; between two pauses are at most a few
    milliseconds. The number of steps depends only on the problem.
    """
    round_ = _Round(problem)
    yield
    yield from round_.open()
    yield from place(round_.books)
    round_.force_who_made_way()
    has_more = yield from round_.improve()
    return (yield from round_.close(has_more))


class _Entry(Struct, frozen=True):
    """A work, its demand, and a task for each owner."""

    work: Work
    demand: OwnerDemand
    tasks: list[Task]


class _Round:
    """The working state of one round: the books, and the tasks of each work."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.settings = problem.settings
        open_nodes = [node for node in problem.nodes if not node.is_draining]
        self.nodes = sorted(open_nodes, key=lambda node: (node.name, node.boot))
        self.books = Books(self.nodes, self.settings.tasks_max)
        self.number = {node.boot: at for at, node in enumerate(self.nodes)}
        self.entries: list[_Entry] = []
        self.reasons = RoundReasons(problem, self.nodes)

    def open(self) -> Generator[None, None, None]:
        """Determine each work's demand and tasks, and keep tasks where they are."""
        works = sorted(self.problem.works, key=lambda work: work.name)
        wanted = demands(works, len(self.nodes), self.settings)
        yield
        provisional = [0.0] * len(self.nodes)
        for work in works:
            for owner in work.owners:
                node = self.number.get(owner.boot)
                if node is not None:
                    provisional[node] += self._weight(work, len(owner.partitions))
        yield
        for at, (work, demand) in enumerate(zip(works, wanted, strict=True)):
            tasks = []
            if demand.owners:
                kept = self._kept(work, demand.owners, provisional)
                tasks = self._tasks(at, work, demand.owners, kept)
            self.entries.append(_Entry(work, demand, tasks))
            if at % _WORKS_IN_A_STEP == 0:
                yield
        self._evict()

    def _kept(self, work: Work, count: int, provisional: list[float]) -> frozenset[str]:
        """Return the owners that stay; if there are too many, those on the fullest nodes go."""
        staying = [owner for owner in work.owners if owner.boot in self.number]
        while len(staying) > count:
            fullest = max(
                staying,
                key=lambda owner: (
                    provisional[self.number[owner.boot]]
                    / self.books.capacity[self.number[owner.boot]],
                    self.number[owner.boot],
                ),
            )
            staying.remove(fullest)
            weight = self._weight(work, len(fullest.partitions))
            provisional[self.number[fullest.boot]] -= weight
        return frozenset(owner.boot for owner in staying)

    def _tasks(self, at: int, work: Work, count: int, kept: frozenset[str]) -> list[Task]:
        moved_s = work.moved_s
        is_stable = moved_s is None or self.problem.now_s - moved_s >= self.settings.stable_s
        tasks = []
        for slot in divide(work.partitions, count, work.owners, kept):
            weight = self._weight(work, len(slot.partitions))
            task = self.books.add(at, slot.partitions, weight, slot.share)
            if slot.boot:
                task.is_stable = is_stable
                task.was = task.home = self.number[slot.boot]
                self.books.put(task, task.was)
            tasks.append(task)
        return tasks

    def _evict(self) -> None:
        """Take the lightest tasks from each node that has too many."""
        for tasks in self.books.on:
            for _, number in tasks[: max(0, len(tasks) - self.settings.tasks_max)]:
                task = self.books.tasks[number]
                self.books.take(task)
                self._force(task)

    def force_who_made_way(self) -> None:
        """Mark tasks that made way for others as forced, so that they do not count as moves for
        balance.
        """
        for task in self.books.made_way:
            self._force(task)

    def _force(self, task: Task) -> None:
        if task.was >= 0:
            self.reasons.evicted(task, task.was)
            task.was = task.home = -1

    def _weight(self, work: Work, partitions: int) -> int:
        """Return the weight of a task with this many partitions, in grains."""
        weight = 0.0 if work.is_suspended else work.weight * partitions / max(1, work.partitions)
        return round(max(weight, self.settings.idle_weight) * GRAINS)

    def budget(self) -> int:
        """How many tasks the round may move for balance alone."""
        if self.settings.moves_max is not None:
            return self.settings.moves_max
        return max(20, len(self.books.tasks) // 50)

    def improve(self) -> Generator[None, None, bool]:
        """Bring loads near their targets. True if the budget ended it.

        All steps together must be worth it, not each one: with many tasks on each node, every
        single step is small.
        """
        if len(self.nodes) < 2:
            return False
        taken = yield from self._try()
        if taken is None and (yield from self._settle()):
            # Tasks placed in this round may move freely; moving only those may suffice.
            taken = yield from self._try()
        steps = taken or []
        left, kept = self.budget(), 0
        while kept < len(steps) and steps[kept].cost <= left:
            left -= steps[kept].cost
            kept += 1
        for step in reversed(steps[kept:]):
            step.undo(self.books)
        for step in steps[:kept]:
            self.reasons.balanced(step)
        return kept < len(steps)

    def _try(self) -> Generator[None, None, list[Step] | None]:
        """Apply steps until none helps. Returns None, with everything undone, if the result is not
        worth it.
        """
        books, settings = self.books, self.settings
        limits = Tolerance(settings.uneven, settings.starved)
        loads = list(books.load)
        target = targets(books)
        taken: list[Step] = []
        for _ in range(_PASSES_MAX):
            count = len(taken)
            for step in improve(books, target, limits):
                if step is not None:
                    taken.append(step)
                yield
            if len(taken) == count:
                break
            # The positions of the heaviest tasks determine the targets of the other nodes.
            target = targets(books)
            yield
        starved = settings.starved
        gained = _out_of_place(loads, target, starved) - _out_of_place(books.load, target, starved)
        if gained >= settings.gain_min or not any(step.cost for step in taken):
            return taken
        for step in reversed(taken):
            step.undo(books)
        return None

    def _settle(self) -> Generator[None, None, bool]:
        """Make each task's current node its home. Tasks of a work whose owners changed count as
        just moved, unless the work had no owner before. False if every task had a home.
        """
        is_any = False
        for at, entry in enumerate(self.entries):
            is_changed = bool(entry.work.owners) and self._owners(entry) != _owned(entry.work)
            for task in entry.tasks:
                is_any = is_any or task.home < 0
                task.home = task.at
                task.is_stable = task.is_stable and not is_changed
            if at % _WORKS_IN_A_STEP == 0:
                yield
        return is_any

    def _owners(self, entry: _Entry) -> set[tuple[str, tuple[int, ...]]]:
        return {(self.nodes[task.at].boot, task.partitions) for task in entry.tasks}

    def close(self, has_more: bool) -> Generator[None, None, Planned]:
        """Return the changes with their reasons, and the figures of the round."""
        assignments: list[Assignment] = []
        for at, entry in enumerate(self.entries):
            self._keep_sets(entry)
            if self._owners(entry) != _owned(entry.work):
                assignments.append(self._assignment(entry))
            if at % _WORKS_IN_A_STEP == 0:
                yield
        target = targets(self.books)
        loads = zip(self.books.load, target, strict=True)
        return Planned(
            tuple(assignments),
            moves=sum(task.at != task.was >= 0 for task in self.books.tasks),
            forced=sum(task.was < 0 for task in self.books.tasks),
            unplaced=sum(entry.demand.missing for entry in self.entries),
            worst=max((load / part for load, part in loads), default=0.0),
            has_more=has_more,
        )

    def _keep_sets(self, entry: _Entry) -> None:
        """If an owner lost one task and got another of the same subscription, give it its old
        partitions back, so that its consumer need not restart.
        """
        had = {owner.boot: tuple(sorted(owner.partitions)) for owner in entry.work.owners}
        by_set = {task.partitions: task for task in entry.tasks}
        for task in entry.tasks:
            own = by_set.get(had.get(self.nodes[task.at].boot, ()), task)
            if own is not task and own.at != own.was and own.weight == task.weight:
                here, there = task.at, own.at
                self.books.take(task)
                self.books.move(own, here)
                self.books.put(task, there)

    def _assignment(self, entry: _Entry) -> Assignment:
        # A new owner begins with an even share, for which the others make room in proportion. The
        # share of an owner that is gone goes to the others, also in proportion.
        work, tasks = entry.work, entry.tasks
        known = sum(task.share for task in tasks if task.share is not None)
        new = sum(task.share is None for task in tasks)
        even = 1 / max(1, len(tasks))
        is_as_before = len(tasks) == len(work.owners) and known <= 1
        scale = 1.0 if is_as_before or not known else (1 - new * even) / known
        found = [
            Target(
                self.nodes[task.at].boot,
                task.partitions,
                whole_units(even if task.share is None else task.share * scale),
            )
            for task in tasks
        ]
        return Assignment(work.name, tuple(found), self.reasons.of(work, entry.demand, tasks))


def _owned(work: Work) -> set[tuple[str, tuple[int, ...]]]:
    return {(owner.boot, tuple(sorted(owner.partitions))) for owner in work.owners}


def _out_of_place(loads: list[int], target: list[float], starved: float) -> float:
    """How far nodes are out of place, as parts of their targets: well above them, or starved."""
    wrong = 0.0
    for load, part in zip(loads, target, strict=True):
        if load > (1 + NEAR) * part:
            wrong += load / part - (1 + NEAR)
        elif load < (1 - starved) * part:
            wrong += 1 - load / part
    return wrong
