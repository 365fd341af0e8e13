"""Whatever the cluster: owners are distinct, living and as many as wanted, and plans are stable."""

import random
import re
from collections.abc import Generator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hermes_actors.balancer.workload.planner import plan, plan_in_steps
from hermes_actors.balancer.workload.problem import (
    Planned,
    PlannedNode,
    PlannedOwner,
    PlannerSettings,
    Problem,
    Work,
)
from hermes_actors.coordination.reasons import NO_ROOM, NODE_FULL, NODE_LEFT, Reason, text
from tests.balancer.workload.planned_clusters import (
    NOW_S,
    after,
    counts,
    heavy_tailed,
    loads,
    nodes_of,
    problems,
    unevenness,
    works_of,
)

ANY = problems()


def wanted(work: Work, problem: Problem) -> int:
    living = sum(not node.is_draining for node in problem.nodes)
    asked = 1 if work.is_suspended else work.constraint or problem.settings.owners_default
    return min(living, work.partitions, asked)


@given(ANY)
def test_each_subscription_has_as_many_distinct_owners_as_wanted_where_there_is_room(
    problem: Problem,
) -> None:
    planned = plan(problem)
    then = after(problem, planned)
    living = [node for node in problem.nodes if not node.is_draining]
    room = len(living) * problem.settings.tasks_max
    total = sum(wanted(work, problem) for work in problem.works)
    owned = sum(len(work.owners) for work in then.works)
    assert owned == min(room, total)
    assert planned.unplaced == total - owned
    for work in then.works:
        assert len(work.owners) <= wanted(work, problem)
        assert len({owner.boot for owner in work.owners}) == len(work.owners)
        if room >= total:
            assert len(work.owners) == wanted(work, problem)


@given(ANY)
def test_an_owned_subscription_has_each_partition_once_and_evenly(problem: Problem) -> None:
    for work in after(problem, plan(problem)).works:
        if work.owners:
            held = [partition for owner in work.owners for partition in owner.partitions]
            assert sorted(held) == list(range(work.partitions))
            sizes = [len(owner.partitions) for owner in work.owners]
            assert max(sizes) - min(sizes) <= 1
            assert all(owner.partitions == tuple(sorted(owner.partitions)) for owner in work.owners)


@given(ANY)
def test_nothing_is_planned_on_nodes_that_drain_or_are_gone_or_beyond_a_nodes_room(
    problem: Problem,
) -> None:
    then = after(problem, plan(problem))
    living = {node.boot for node in problem.nodes if not node.is_draining}
    assert {owner.boot for work in then.works for owner in work.owners} <= living
    assert all(count <= problem.settings.tasks_max for count in counts(then).values())


@given(ANY, st.randoms(use_true_random=False))
def test_the_order_of_what_is_told_does_not_matter(problem: Problem, rng: random.Random) -> None:
    nodes, works = list(problem.nodes), list(problem.works)
    rng.shuffle(nodes)
    rng.shuffle(works)
    shuffled = replace(problem, nodes=tuple(nodes), works=tuple(works))
    assert plan(shuffled) == plan(problem)


@given(ANY)
def test_a_second_plan_changes_nothing(problem: Problem) -> None:
    unbound = replace(problem, settings=replace(problem.settings, moves_max=1_000_000))
    then = after(unbound, plan(unbound))
    again = plan(then)
    assert again.assignments == ()
    assert again.moves == again.forced == 0


@given(ANY)
def test_balance_alone_moves_no_more_than_the_budget(problem: Problem) -> None:
    planned = plan(problem)
    assert problem.settings.moves_max is not None
    assert planned.moves <= problem.settings.moves_max


@given(ANY)
def test_the_books_are_true(problem: Problem) -> None:
    """What the planner thinks of the worst node is what sums up from the owners that it names."""
    alike = all(node.capacity == 1.0 for node in problem.nodes)
    planned = plan(problem)
    then = after(problem, planned)
    sums = loads(then)
    suspended = any(work.is_suspended and work.weight for work in problem.works)
    if not sums or not sum(sums.values()) or not alike or suspended:
        return
    mean = sum(sums.values()) / len(sums)
    heaviest = max(
        max(problem.settings.idle_weight, work.weight * len(owner.partitions) / work.partitions)
        for work in then.works
        for owner in work.owners
    )
    # A task above the mean changes what the others are to carry.
    if heaviest < mean:
        assert planned.worst == pytest.approx(max(sums.values()) / mean, rel=1e-4)


@given(ANY)
def test_each_change_has_a_reason_and_shares_of_one_at_most(problem: Problem) -> None:
    for assignment in plan(problem).assignments:
        assert text(assignment.reasons)
        assert sum(target.share for target in assignment.targets) <= 1 + 1e-9
        assert all(target.share > 0 for target in assignment.targets)


@given(ANY)
def test_an_owner_that_stays_keeps_its_partitions_unless_the_division_is_another(
    problem: Problem,
) -> None:
    then = {work.name: work for work in after(problem, plan(problem)).works}
    for work in problem.works:
        before = {owner.boot: owner.partitions for owner in work.owners}
        new = then[work.name].owners
        held = sorted(partition for owner in work.owners for partition in owner.partitions)
        sizes = sorted(len(owner.partitions) for owner in work.owners)
        is_even = held == list(range(work.partitions)) and sizes[-1] - sizes[0] <= 1
        if is_even and len(new) == len(work.owners):
            for owner in new:
                had = before.get(owner.boot, owner.partitions)
                assert had == owner.partitions or len(had) != len(owner.partitions)


def test_a_plan_in_steps_is_the_same_plan() -> None:
    problem = Problem(nodes_of(3), works_of([1.0, 2.0, 3.0] * 30), NOW_S)
    ended: list[Planned] = []

    def run() -> Generator[None, None, None]:
        ended.append((yield from plan_in_steps(problem)))

    assert len(list(run())) > 5
    assert ended == [plan(problem)]


def test_only_a_lost_nodes_tasks_move_and_what_balance_needs_within_the_budget() -> None:
    problem = heavy_tailed(3, nodes=6, works=300)
    then = after(problem, plan(problem))
    lost = replace(then, nodes=then.nodes[1:])
    settings = replace(lost.settings, moves_max=0)
    planned = plan(replace(lost, settings=settings))
    assert planned.moves == 0
    assert planned.forced == counts(then)["boot-0"]
    assert set(codes(planned)) == {(NODE_LEFT,)}

    planned = plan(lost)
    assert planned.forced == counts(then)["boot-0"]
    assert planned.moves < 0.2 * planned.forced
    assert unevenness(after(lost, planned)) <= 1.02


def test_a_node_with_more_tasks_than_it_may_have_gives_its_lightest_away() -> None:
    works = tuple(
        replace(work, owners=(PlannedOwner("boot-0", (0,)),))
        for work in works_of([3.0, 1.0, 2.0], partitions=1)
    )
    problem = Problem(nodes_of(2), works, NOW_S, PlannerSettings(tasks_max=2, moves_max=0))
    (assignment,) = plan(problem).assignments
    assert assignment.subscription == "g.topic$s0001"
    assert assignment.reasons == (Reason(NODE_FULL, {"node": "n00", "tasks": 2}),)


def test_where_there_is_no_room_each_gets_one_owner_before_any_gets_two() -> None:
    settings = PlannerSettings(tasks_max=3)
    problem = Problem(nodes_of(2), works_of([1.0] * 5), NOW_S, settings)
    planned = plan(problem)
    then = after(problem, planned)
    assert sorted(len(work.owners) for work in then.works) == [1, 1, 1, 1, 2]
    assert planned.unplaced == 4
    assert sum(NO_ROOM in each for each in codes(planned)) == 4


def test_a_full_node_makes_way_for_a_second_owner() -> None:
    """Only n01 has room, and it owns s1 already; so n00 gives it another task and takes s1."""

    def owned(name: str, *boots: str) -> Work:
        size = 2 // len(boots)
        owners = (
            PlannedOwner(boot, tuple(range(at * size, (at + 1) * size)), 1 / len(boots))
            for at, boot in enumerate(boots)
        )
        return Work(name, 2, 1.0, tuple(owners), constraint=len(boots))

    works = (
        owned("g.t$s0", "boot-0"),
        replace(owned("g.t$s1", "boot-1"), constraint=2),
        owned("g.t$s2", "boot-0"),
    )
    problem = Problem(nodes_of(2), works, NOW_S, PlannerSettings(tasks_max=2))
    then = after(problem, plan(problem))
    assert counts(then) == {"boot-0": 2, "boot-1": 2}
    assert len(then.works[1].owners) == 2


def codes(planned: Planned) -> list[tuple[str, ...]]:
    return [tuple(reason.code for reason in each.reasons) for each in planned.assignments]


def words(planned: Planned) -> set[str]:
    return {text(each.reasons) for each in planned.assignments}


def test_reasons_are_what_a_person_would_say() -> None:
    nodes = nodes_of(3)
    fresh = Problem(nodes, works_of([1.0] * 30), NOW_S)
    planned = plan(fresh)
    assert words(planned) == {"new, owners: 2"}
    then = replace(after(fresh, planned), gone={"boot-0": "n00"})

    assert words(plan(replace(then, nodes=nodes[1:]))) == {"node n00 left"}
    draining = (replace(nodes[0], is_draining=True), *nodes[1:])
    assert words(plan(replace(then, nodes=draining))) == {"node n00 is drained"}
    stopping = (replace(nodes[0], is_draining=True, is_stopping=True), *nodes[1:])
    assert words(plan(replace(then, nodes=stopping))) == {"node n00 stops"}
    joined = plan(replace(then, nodes=(*nodes, PlannedNode("boot-9", "n09"))))
    assert all(re.fullmatch(r"weight 0.5 from n0\d to n09", each) for each in words(joined))

    def changed(**fields: object) -> set[str]:
        return words(plan(replace(then, works=(replace(then.works[0], **fields), *then.works[1:]))))

    assert changed(constraint=3) == {"owners: 3 (decided by: constraint)"}
    assert changed(is_suspended=True) == {"owners: 1 (decided by: suspended)"}
    assert changed(partitions=6) == {"partitions: 6"}
    none = plan(replace(then, nodes=()))
    assert all("owners: 0 (decided by: nodes)" in each for each in words(none))


@pytest.mark.slow
def test_the_default_budget_is_small_and_rounds_go_on_until_all_is_even() -> None:
    settings = PlannerSettings()
    problem = Problem(nodes_of(2), works_of([1.0] * 200), NOW_S, settings)
    problem = after(problem, plan(problem))
    problem = replace(problem, nodes=nodes_of(4))
    rounds = 0
    while (planned := plan(problem)).has_more or planned.assignments:
        assert planned.moves <= 20
        problem = after(problem, planned)
        rounds += 1
        assert rounds < 20
    assert max(counts(problem).values()) - min(counts(problem).values()) <= 10
