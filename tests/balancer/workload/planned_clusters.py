"""Clusters to plan for: made up, drawn by hypothesis, and as they are after a plan."""

import random
from collections.abc import Sequence

from hypothesis import strategies as st
from msgspec.structs import replace

from hermes_actors.balancer.workload.problem import (
    Node,
    Owner,
    Planned,
    Problem,
    Settings,
    Strategy,
    Work,
)

NOW_S = 100_000.0


def nodes_of(count: int, capacity: float = 1.0) -> tuple[Node, ...]:
    return tuple(Node(f"boot-{at}", f"n{at:02}", capacity) for at in range(count))


def works_of(weights: Sequence[float], partitions: int = 4) -> tuple[Work, ...]:
    return tuple(Work(f"g.topic$s{at:04}", partitions, weight) for at, weight in enumerate(weights))


def heavy_tailed(
    seed: int, nodes: int, works: int, sigma: float = 1.5, moves_max: int | None = 1_000_000
) -> Problem:
    rng = random.Random(seed)
    weights = [2 * rng.lognormvariate(0, sigma) for _ in range(works)]
    settings = Settings(moves_max=moves_max, idle_weight=0.01)
    return Problem(nodes_of(nodes), works_of(weights), NOW_S, settings)


def scattered(problem: Problem, seed: int) -> Problem:
    """Everything already owned, by nodes picked blindly."""
    rng = random.Random(seed)
    boots = [node.boot for node in problem.nodes]

    def owners(work: Work) -> tuple[Owner, ...]:
        picked = rng.sample(boots, min(2, len(boots), work.partitions))
        count = len(picked)
        return tuple(
            Owner(boot, tuple(range(at, work.partitions, count)), 1 / count)
            for at, boot in enumerate(picked)
        )

    return replace(
        problem, works=tuple(replace(work, owners=owners(work)) for work in problem.works)
    )


def after(problem: Problem, planned: Planned) -> Problem:
    """The cluster when all that was planned has been done."""
    changed = {each.subscription: each for each in planned.assignments}
    assert len(changed) == len(planned.assignments)

    def work_after(work: Work) -> Work:
        if work.name not in changed:
            return work
        targets = changed[work.name].targets
        owners = tuple(Owner(each.boot, each.partitions, each.share) for each in targets)
        is_first = not work.owners
        return replace(work, owners=owners, moved_s=None if is_first else problem.now_s)

    return replace(problem, works=tuple(work_after(work) for work in problem.works))


def loads(problem: Problem) -> dict[str, float]:
    """What each node carries, summed up from who owns what; nodes that may own something."""
    sums = {node.boot: 0.0 for node in problem.nodes if not node.is_draining}
    for work in problem.works:
        for owner in work.owners:
            if owner.boot in sums:
                weight = work.weight * len(owner.partitions) / work.partitions
                sums[owner.boot] += max(weight, problem.settings.idle_weight)
    return sums


def unevenness(problem: Problem) -> float:
    """The greatest load for its capacity, in parts of the ideal: the mean, or the heaviest task on
    the largest node if that is more.
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


_WEIGHTS = st.one_of(st.just(0.0), st.floats(0.01, 5.0), st.floats(5.0, 200.0))


@st.composite
def works_drawn(draw: st.DrawFn, name: str, boots: Sequence[str]) -> Work:
    partitions = draw(st.integers(1, 8))
    owners: list[Owner] = []
    picked = draw(st.lists(st.sampled_from(boots), unique=True, max_size=min(4, partitions)))
    if picked:
        # Every partition at one of them, or at none: as an older plan for another topic had it.
        holders = draw(
            st.lists(st.integers(0, len(picked)), min_size=partitions, max_size=partitions)
        )
        for at, boot in enumerate(picked):
            held = tuple(number for number, holder in enumerate(holders) if holder == at)
            if held:
                owners.append(Owner(boot, held, 1 / len(picked)))
    return Work(
        name,
        partitions,
        draw(_WEIGHTS),
        tuple(owners),
        constraint=draw(st.one_of(st.none(), st.integers(1, 5))),
        moved_s=draw(st.one_of(st.none(), st.sampled_from([NOW_S - 60, NOW_S - 10_000]))),
        is_suspended=draw(st.sampled_from([False, False, False, True])),
    )


@st.composite
def problems(draw: st.DrawFn, strategy: Strategy = Strategy.WEIGHTED) -> Problem:
    """Any small cluster: draining nodes, owners that are gone, no room, nothing to do."""
    count = draw(st.integers(0, 5))
    nodes = tuple(
        Node(
            f"boot-{at}",
            f"n{at}",
            draw(st.sampled_from([1.0, 1.0, 2.0, 8.0])),
            is_draining=draw(st.sampled_from([False, False, False, True])),
        )
        for at in range(count)
    )
    boots = [f"boot-{at}" for at in range(count + 2)]
    works = tuple(
        draw(works_drawn(f"g.t$s{at:02}", boots)) for at in range(draw(st.integers(0, 16)))
    )
    settings = Settings(
        strategy,
        tasks_max=draw(st.sampled_from([2, 4, 1_000])),
        moves_max=draw(st.sampled_from([0, 2, 1_000_000])),
    )
    return Problem(nodes, works, NOW_S, settings)
