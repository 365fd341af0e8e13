"""Clusters to plan for: synthetic, drawn by hypothesis, and after a plan."""

import random
from collections.abc import Sequence

from hypothesis import strategies as st
from msgspec.structs import replace

from hermes_actors.balancer.workload.problem import (
    Planned,
    PlannedNode,
    PlannedOwner,
    PlannerSettings,
    Problem,
    Work,
)

NOW_S = 100_000.0


def nodes_of(count: int, capacity: float = 1.0) -> tuple[PlannedNode, ...]:
    return tuple(PlannedNode(f"boot-{at}", f"n{at:02}", capacity) for at in range(count))


def works_of(weights: Sequence[float], partitions: int = 4) -> tuple[Work, ...]:
    return tuple(Work(f"g.topic$s{at:04}", partitions, weight) for at, weight in enumerate(weights))


def heavy_tailed(
    seed: int, nodes: int, works: int, sigma: float = 1.5, moves_max: int | None = 1_000_000
) -> Problem:
    rng = random.Random(seed)
    weights = [2 * rng.lognormvariate(0, sigma) for _ in range(works)]
    settings = PlannerSettings(moves_max=moves_max, idle_weight=0.01)
    return Problem(nodes_of(nodes), works_of(weights), NOW_S, settings)


def scattered(problem: Problem, seed: int) -> Problem:
    """Everything is owned already, by randomly chosen nodes."""
    rng = random.Random(seed)
    boots = [node.boot for node in problem.nodes]

    def owners(work: Work) -> tuple[PlannedOwner, ...]:
        picked = rng.sample(boots, min(2, len(boots), work.partitions))
        count = len(picked)
        return tuple(
            PlannedOwner(boot, tuple(range(at, work.partitions, count)), 1 / count)
            for at, boot in enumerate(picked)
        )

    return replace(
        problem, works=tuple(replace(work, owners=owners(work)) for work in problem.works)
    )


def after(problem: Problem, planned: Planned) -> Problem:
    """The cluster after the plan was carried out."""
    changed = {each.subscription: each for each in planned.assignments}
    assert len(changed) == len(planned.assignments)

    def work_after(work: Work) -> Work:
        if work.name not in changed:
            return work
        targets = changed[work.name].targets
        owners = tuple(PlannedOwner(each.boot, each.partitions, each.share) for each in targets)
        is_first = not work.owners
        return replace(work, owners=owners, moved_s=None if is_first else problem.now_s)

    return replace(problem, works=tuple(work_after(work) for work in problem.works))


def loads(problem: Problem) -> dict[str, float]:
    """The load of each node that may own something, summed up from the owners."""
    sums = {node.boot: 0.0 for node in problem.nodes if not node.is_draining}
    for work in problem.works:
        for owner in work.owners:
            if owner.boot in sums:
                weight = work.weight * len(owner.partitions) / work.partitions
                sums[owner.boot] += max(weight, problem.settings.idle_weight)
    return sums


def unevenness(problem: Problem) -> float:
    """The greatest load relative to capacity, over the ideal: the mean, or the heaviest task on the
    largest node if that is more.
    """
    capacity = {node.boot: node.capacity * node.speed for node in problem.nodes}
    sums = loads(problem)
    mean = sum(sums.values()) / sum(capacity[boot] for boot in sums)
    heaviest = max(
        work.weight * len(owner.partitions) / work.partitions
        for work in problem.works
        for owner in work.owners
    )
    ideal = max(mean, heaviest / max(capacity[boot] for boot in sums))
    return max(load / capacity[boot] for boot, load in sums.items()) / ideal


def counts(problem: Problem) -> dict[str, int]:
    found = {node.boot: 0 for node in problem.nodes if not node.is_draining}
    for work in problem.works:
        for owner in work.owners:
            if owner.boot in found:
                found[owner.boot] += 1
    return found


def _work(name: str, boots: Sequence[str], rng: random.Random) -> Work:
    partitions = rng.randint(1, 8)
    picked = rng.sample(boots, rng.randint(0, min(4, partitions, len(boots))))
    owners: list[PlannedOwner] = []
    if picked:
        # Evenly, as planned; or each partition at any owner or at none, as after a change of the
        # number of partitions.
        is_even = rng.random() < 0.6
        holders = [
            number % len(picked) if is_even else rng.randint(0, len(picked))
            for number in range(partitions)
        ]
        for at, boot in enumerate(picked):
            held = tuple(number for number, holder in enumerate(holders) if holder == at)
            if held:
                owners.append(PlannedOwner(boot, held, 1 / len(picked)))
    return Work(
        name,
        partitions,
        rng.choice([0.0, rng.uniform(0.01, 5.0), rng.uniform(5.0, 200.0)]),
        tuple(owners),
        constraint=rng.choice([None, None, rng.randint(1, 5)]),
        moved_s=rng.choice([None, NOW_S - 60, NOW_S - 10_000]),
        is_suspended=rng.random() < 0.2,
    )


def _any_cluster(seed: int, count: int, works: int) -> Problem:
    rng = random.Random(seed)
    nodes = tuple(
        PlannedNode(
            f"boot-{at}", f"n{at}", rng.choice([1.0, 1.0, 2.0, 8.0]), is_draining=rng.random() < 0.2
        )
        for at in range(count)
    )
    boots = [f"boot-{at}" for at in range(count + 2)]
    settings = PlannerSettings(
        tasks_max=rng.choice([2, 4, 1_000]), moves_max=rng.choice([0, 2, 1_000_000])
    )
    drawn = tuple(_work(f"g.t$s{at:02}", boots, rng) for at in range(works))
    return Problem(nodes, drawn, NOW_S, settings)


def problems() -> st.SearchStrategy[Problem]:
    """Any small cluster: draining nodes, lost owners, no room, nothing to do.

    Hypothesis makes only a few of the choices, so that drawing is no slower than planning.
    """
    return st.builds(
        _any_cluster,
        st.integers(0, 2**32),
        st.integers(0, 5),
        st.integers(0, 16),
    )
