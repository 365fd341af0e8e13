"""One round of planning: who is to own what now, as few changes as balance needs, each with reason.

The same cluster gives the same plan, in whatever order it is told, and a plan made anew after it
changes nothing.
"""

from collections.abc import Generator

from msgspec import Struct
from msgspec.structs import replace

from hermes_actors.balancer.workload.books import GRAINS, Books, Task
from hermes_actors.balancer.workload.counting import even_out
from hermes_actors.balancer.workload.demand import OwnerDemand, demands
from hermes_actors.balancer.workload.exchanges import Step
from hermes_actors.balancer.workload.improving import NEAR, Tolerance, improve
from hermes_actors.balancer.workload.placing import place
from hermes_actors.balancer.workload.problem import Planned, PlannedNode, Problem, Strategy, Work
from hermes_actors.balancer.workload.reasons import Reasons
from hermes_actors.balancer.workload.shares import whole_units
from hermes_actors.balancer.workload.slots import Restarting, divide
from hermes_actors.balancer.workload.targets import targets
from hermes_actors.coordination.commands import Assignment, Target

_WORKS_IN_A_STEP = 32
_PASSES_MAX = 20


class _Taken(Struct, frozen=True):
    """A step that was tried, with the receiving node as it was before."""

    step: Step
    target: float
    load: int
    is_new: bool


def plan(problem: Problem) -> Planned:
    """Return the round's changes, in one go."""
    steps = plan_in_steps(problem)
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            planned: Planned = ended.value
            return planned


def plan_in_steps(problem: Problem) -> Generator[None, None, Planned]:
    """Return the round's changes, with a pause at each yield: between two of them are a few
    milliseconds at most.

    A caller that shares its thread with others lets them run at each pause. The number of steps
    depends on the problem alone.
    """
    round_ = _Round(problem)
    yield
    yield from round_.open()
    yield from place(round_.books)
    round_.force_who_made_way()
    if problem.settings.strategy is Strategy.COUNT:
        has_more = yield from round_.count_evenly()
    else:
        has_more = yield from round_.weigh_evenly()
    return (yield from round_.close(has_more))


class _Round:
    """The working values of one round: the books, and for each work its tasks."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.settings = problem.settings
        self.is_weighted = problem.settings.strategy is Strategy.WEIGHTED
        open_nodes = [node for node in problem.nodes if not node.is_draining]
        self.nodes = sorted(open_nodes, key=lambda node: (node.name, node.boot))
        self.works = sorted(problem.works, key=lambda work: work.name)
        books_nodes = self.nodes if self.is_weighted else [_alike(node) for node in self.nodes]
        is_restarting = problem.is_restarting
        self.books = Books(books_nodes, self.settings.tasks_max, is_restarting=is_restarting)
        self.restarted = frozenset(node.boot for node in self.nodes if node.is_restarted)
        self.number = {node.boot: at for at, node in enumerate(self.nodes)}
        self.demands: list[OwnerDemand] = []
        self.first_task: list[int] = []
        self.reasons = Reasons(problem, self.nodes)

    def open(self) -> Generator[None, None, None]:
        """The demand of each work, its tasks, and those that stay where they are."""
        self.demands = demands(self.works, len(self.nodes), self.settings)
        yield
        provisional = [0.0] * len(self.nodes)
        for at, work in enumerate(self.works):
            for owner in work.owners:
                node = self.number.get(owner.boot)
                if node is not None:
                    provisional[node] += self._weight(work, len(owner.partitions))
            if at % (4 * _WORKS_IN_A_STEP) == 0:
                yield
        for at, (work, demand) in enumerate(zip(self.works, self.demands, strict=True)):
            self.first_task.append(len(self.books.tasks))
            if demand.owners:
                kept = self._kept(work, demand.owners, provisional)
                self._add_tasks(at, work, demand.owners, kept)
            if at % _WORKS_IN_A_STEP == 0:
                yield
        self._evict()

    def _kept(self, work: Work, count: int, provisional: list[float]) -> frozenset[str]:
        """Return the owners that stay; where they are too many, those on the fullest nodes go."""
        staying = [owner for owner in work.owners if owner.boot in self.number]
        numbers = {owner.boot: self.number[owner.boot] for owner in staying}
        while len(staying) > count:
            fullest = max(
                staying,
                key=lambda owner: (
                    provisional[numbers[owner.boot]] / self.books.capacity[numbers[owner.boot]],
                    numbers[owner.boot],
                ),
            )
            staying.remove(fullest)
            provisional[numbers[fullest.boot]] -= self._weight(work, len(fullest.partitions))
        return frozenset(owner.boot for owner in staying)

    def _add_tasks(self, at: int, work: Work, count: int, kept: frozenset[str]) -> None:
        now_s, moved_s = self.problem.now_s, work.moved_s
        is_stable = moved_s is None or now_s - moved_s >= self.settings.stable_s
        is_restarting = self.problem.is_restarting
        restarting = Restarting(self.restarted, work.moves) if is_restarting else None
        for slot in divide(work.partitions, count, work.owners, kept, restarting):
            weight = self._weight(work, len(slot.partitions))
            task = self.books.add(at, slot.partitions, weight, slot.share)
            if slot.boot:
                task.is_stable = is_stable
                task.was = task.home = self.number[slot.boot]
                self.books.put(task, task.was)
            if is_restarting or work.moves:
                _count_moves(task, slot.boot, work)

    def _evict(self) -> None:
        """Take the lightest tasks from each node that has more than a node may have."""
        for node, tasks in enumerate(self.books.on):
            for _, number in tasks[: max(0, len(tasks) - self.settings.tasks_max)]:
                task = self.books.tasks[number]
                self.books.take(task)
                task.was = task.home = -1
                self.reasons.evicted(task, node, self.settings.tasks_max)

    def force_who_made_way(self) -> None:
        """Tasks that had to go so that others had room are no moves for balance."""
        for task in self.books.made_way:
            if task.was >= 0:
                self.reasons.evicted(task, task.was, self.settings.tasks_max)
                task.was = task.home = -1

    def _weight(self, work: Work, partitions: int) -> int:
        """Return the cost of a task of so many partitions, in grains."""
        if not self.is_weighted:
            return GRAINS
        weight = 0.0 if work.is_suspended else work.weight * partitions / max(1, work.partitions)
        return round(max(weight, self.settings.idle_weight) * GRAINS)

    def budget(self) -> int:
        """How many tasks the round may move for balance alone."""
        if self.settings.moves_max is not None:
            return self.settings.moves_max
        return max(20, len(self.books.tasks) // 50)

    def count_evenly(self) -> Generator[None, None, bool]:
        """Equal counts; tells whether the budget ended it."""
        if not self.nodes:
            return False
        for task in even_out(self.books, self.budget()):
            self.reasons.counted(task, len(self.books.on[task.at]))
            yield
        counts = [len(tasks) for tasks in self.books.on]
        return max(counts) - min(counts) > 1

    def weigh_evenly(self) -> Generator[None, None, bool]:
        """Loads near their targets; tells whether the budget ended it.

        The whole way there must be worth it, not each of its steps: with many tasks on each node
        every single step is small.
        """
        if len(self.nodes) < 2:
            return False
        is_new = [not tasks for tasks in self.books.on]
        taken = yield from self._try(is_new)
        if taken is None and (yield from self._settle()):
            # What was placed where it was free to go may do without moving others.
            taken = yield from self._try(is_new)
        kept, is_cut = self._within_budget(taken or [])
        for each in reversed((taken or [])[kept:]):
            each.step.undo(self.books)
        yield
        for each in (taken or [])[:kept]:
            self.reasons.weighed(each.step, each.target, each.load, each.is_new)
        return is_cut

    def _try(self, is_new: list[bool]) -> Generator[None, None, list[_Taken] | None]:
        """The steps to where no step helps any more; None, and undone, if that is not worth it."""
        books, settings = self.books, self.settings
        limits = Tolerance(settings.uneven, settings.starved)
        loads = list(books.load)
        target = targets(books)
        taken: list[_Taken] = []
        for _ in range(_PASSES_MAX):
            count = len(taken)
            for step in improve(books, target, limits):
                if step is not None:
                    sink = step.bounds.sink
                    load = books.load[sink] - step.shifted
                    taken.append(_Taken(step, target[sink], load, is_new[sink]))
                yield
            if len(taken) == count:
                break
            # Where the heaviest tasks are now decides what the others are to carry.
            target = targets(books)
            yield
        starved = settings.starved
        gained = _out_of_place(loads, target, starved) - _out_of_place(books.load, target, starved)
        if gained >= settings.gain_min or not any(each.step.cost for each in taken):
            return taken
        for each in reversed(taken):
            each.step.undo(books)
        return None

    def _settle(self) -> Generator[None, None, bool]:
        """Make each task's node its home. Tasks of a work whose owners have changed count as moved
        just now, unless nobody owned it before. False if no task was without a home.
        """
        is_any = False
        firsts = [*self.first_task, len(self.books.tasks)]
        for at, work in enumerate(self.works):
            tasks = self.books.tasks[firsts[at] : firsts[at + 1]]
            is_changed = bool(work.owners) and self._owners(tasks) != _owned(work)
            for task in tasks:
                is_any = is_any or task.home < 0
                task.home = task.at
                task.is_stable = task.is_stable and not is_changed
            if at % _WORKS_IN_A_STEP == 0:
                yield
        return is_any

    def _owners(self, tasks: list[Task]) -> set[tuple[str, tuple[int, ...]]]:
        return {(self.nodes[task.at].boot, task.partitions) for task in tasks}

    def _within_budget(self, taken: list[_Taken]) -> tuple[int, bool]:
        """How many of the steps there are moves for, and whether that is not all."""
        left = self.budget()
        for count, each in enumerate(taken):
            left -= each.step.cost
            if left < 0:
                return count, True
        return len(taken), False

    def close(self, has_more: bool) -> Generator[None, None, Planned]:
        """Return the changes, in words, and the round's figures."""
        assignments: list[Assignment] = []
        moves = forced = 0
        firsts = [*self.first_task, len(self.books.tasks)]
        for at, (work, demand) in enumerate(zip(self.works, self.demands, strict=True)):
            tasks = self.books.tasks[firsts[at] : firsts[at + 1]]
            self._keep_sets(work, tasks)
            moves += sum(task.at != task.was >= 0 for task in tasks)
            forced += sum(task.was < 0 for task in tasks)
            assignment = self._assignment(work, demand, tasks)
            if assignment is not None:
                assignments.append(assignment)
            if at % _WORKS_IN_A_STEP == 0:
                yield
        target = targets(self.books)
        return Planned(
            tuple(assignments),
            moves=moves,
            forced=forced,
            unplaced=sum(demand.missing for demand in self.demands),
            worst=max(
                (load / part for load, part in zip(self.books.load, target, strict=True)),
                default=0.0,
            ),
            has_more=has_more,
        )

    def _keep_sets(self, work: Work, tasks: list[Task]) -> None:
        """Give an owner that lost one task and got another of the same subscription its own one
        back: its consumer need not start anew for others' partitions.
        """
        if all(task.at == task.was for task in tasks):
            return
        had = {owner.boot: tuple(sorted(owner.partitions)) for owner in work.owners}
        by_set = {task.partitions: task for task in tasks}
        for task in tasks:
            own = by_set.get(had.get(self.nodes[task.at].boot, ()))
            if own is None or own is task or own.weight != task.weight:
                continue
            if own.at != own.was:
                here, there = task.at, own.at
                self.books.take(task)
                self.books.take(own)
                self.books.put(own, here)
                self.books.put(task, there)

    def _assignment(self, work: Work, demand: OwnerDemand, tasks: list[Task]) -> Assignment | None:
        if self._owners(tasks) == _owned(work):
            return None
        # Whose part is new begins with an even share, for which the others make room alike; what
        # one had that is no more, the others divide as they share the rest.
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
        return Assignment(work.name, tuple(found), self.reasons.of(work, demand, tasks))


def _count_moves(task: Task, boot: str, work: Work) -> None:
    """How often its partitions have moved, those counted in that come to a boot which stays."""
    had = {each: owner.boot for owner in work.owners for each in owner.partitions}
    task.is_new = had.keys().isdisjoint(task.partitions)
    task.moves = max(
        work.moves.get(each, 0) + (boot not in ("", had.get(each, boot)))
        for each in task.partitions
    )


def _alike(node: PlannedNode) -> PlannedNode:
    return replace(node, capacity=1.0, speed=1.0)


def _owned(work: Work) -> set[tuple[str, tuple[int, ...]]]:
    return {(owner.boot, tuple(sorted(owner.partitions))) for owner in work.owners}


def _out_of_place(loads: list[int], target: list[float], starved: float) -> float:
    """How far nodes are out of place, in parts of their targets: well above them, or starving."""
    wrong = 0.0
    for load, part in zip(loads, target, strict=True):
        if load > (1 + NEAR) * part:
            wrong += load / part - (1 + NEAR)
        elif load < (1 - starved) * part:
            wrong += 1 - load / part
    return wrong
