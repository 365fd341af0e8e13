"""One node has half a core and subscriptions are uneven: how busy each node is, and how many nodes
such a load needs.
"""

import hashlib
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from delivering.sink import Sink
from failing_over.coordination import Witness
from failing_over.fleet import PARTITIONS, Fleet, open_fleet
from failing_over.throttle import HALF, half_a_core
from failing_over.trial import Load, Trial, in_thread
from hermes_actors.balancer.workload.planner import plan
from hermes_actors.balancer.workload.problem import (
    PlannedNode,
    PlannerSettings,
    Problem,
    Work,
)
from publishing.load import cpu_s

BUSY_MAX = 0.40
"""The share of its CPU that a node should use at most, as practised at Allegro."""
COPIES = 10
"""How often the measured tasks are repeated to count nodes, because a saving of a few per cent does
not show with three nodes.
"""
_CORES = "HERMES_CONSUMERS_BALANCER_CORES"
_SOONER = {
    # What takes half an hour by default must show within minutes.
    "HERMES_CONSUMERS_BALANCER_INTERVAL_MS": "5000",
    "HERMES_CONSUMERS_BALANCER_STABILIZATION_WINDOW_MS": "20000",
}
_LOADS_S = 25.0
_ROUNDING = 1e-9
_NAMINGS = 3


def uneven(subscriptions: int, topics: int, rate_per_s: float) -> Load:
    """The n-th topic has about one n-th of the first one's rate."""
    names = [f"balance.t{number}" for number in range(topics)]
    published = [
        name
        for number, name in enumerate(names, start=1)
        for _ in range(max(1, round(2 * topics / number)))
    ]
    # Spread out, so that a topic's messages do not come in a row.
    spread = tuple(published[at * 7919 % len(published)] for at in range(len(published)))
    assert sorted(spread) == sorted(published), "the length has no factor 7919"
    subscribed = {f"b{number}": names[number % topics] for number in range(subscriptions)}
    return Load(subscribed, spread, rate_per_s)


async def measure(
    folder: Path,
    sink: Sink,
    load: Load,
    variables: Mapping[str, str],
    *,
    consumers: int,
    settle_s: float,
    seconds: float,
) -> dict[str, Any]:
    """Run a fleet under the load, then sum up what its tasks cost."""
    fleet = Fleet(
        folder,
        sink,
        consumers=consumers,
        # How much of its core the last node has, it must find out itself.
        variables={_CORES: "1", **_SOONER, **variables},
    )
    async with open_fleet(fleet):
        await in_thread(fleet.create, load.topics)
        with half_a_core(fleet.consumers[-1].pid) as means:
            row, costs = await _measure(fleet, load, settle_s, seconds)
    slow = [1.0] * (consumers - 1) + [HALF]
    return {
        "throttled_by": means,
        **row,
        "tasks_measured": len(costs),
        "task_cpu_sum": round(sum(costs.values()), 3),
        "busy_max": BUSY_MAX,
        "copies": COPIES,
        "nodes_needed": nodes_usually_needed(costs, slow),
        "nodes_needed_of_equal_ones": nodes_usually_needed(costs, [1.0]),
    }


async def _measure(
    fleet: Fleet, load: Load, settle_s: float, seconds: float
) -> tuple[dict[str, Any], dict[str, float]]:
    trial, witness = Trial(fleet, load), Witness(fleet.kafka.bootstrap_servers)
    budgets = [1.0] * (len(fleet.consumers) - 1) + [HALF]
    async with trial.open():
        await _collecting(trial, settle_s)
        began_s = time.perf_counter()
        before = [cpu_s(node.pid) for node in fleet.consumers]
        await _collecting(trial, seconds)
        after = [cpu_s(node.pid) for node in fleet.consumers]
        took_s = time.perf_counter() - began_s
        state = await witness.look()
        loads = await witness.loads(began_s - _LOADS_S)
    used = [(end - start) / took_s for start, end in zip(before, after, strict=True)]
    busy = [each / budget for each, budget in zip(used, budgets, strict=True)]
    tasks = {node.name: 0 for node in fleet.consumers}
    for member in state.members.values():
        tasks[member.node] = len(state.grants_of(member.boot))
    waited = trial.ledger.waited_s(list(trial.ledger.lanes), began_s, began_s + took_s)
    costs: dict[str, float] = {}
    for said in loads.values():
        for name, task in said[-1].tasks.items():
            costs[name] = costs.get(name, 0.0) + task.cpu
    return {
        "nodes": [
            {
                "node": node.name,
                "tasks": tasks[node.name],
                "cpu_cores": round(one, 3),
                "budget_cores": budget,
                "busy": round(part, 3),
            }
            for node, one, budget, part in zip(fleet.consumers, used, budgets, busy, strict=True)
        ],
        "busy_max_to_mean": round(max(busy) / (sum(used) / sum(budgets)), 3),
        "waited_worst_s": round(max(waited.values(), default=0.0), 3),
        "moves": len(state.moves),
        **trial.account(),
    }, costs


async def _collecting(trial: Trial, seconds: float) -> None:
    await trial.until(lambda: False, seconds, look_s=1.0)


def nodes_usually_needed(costs: Mapping[str, float], speeds: Sequence[float]) -> float | None:
    """The median over several namings of the same tasks."""
    found = [nodes_needed(costs, speeds, naming) for naming in range(_NAMINGS)]
    known = [each for each in found if each is not None]
    return statistics.median(known) if known else None


def nodes_needed(
    costs: Mapping[str, float], speeds: Sequence[float], naming: int = 0
) -> int | None:
    """The fewest nodes, with these speeds in turn, so that none exceeds the allowed CPU after the
    planner has placed the copies of the measured tasks. `costs` are in cores.
    """
    works = tuple(
        Work(_name(f"{naming} {name} {copy}"), PARTITIONS, weight=cost * 1_000)
        for copy in range(COPIES)
        for name, cost in sorted(costs.items())
    )
    if not works:
        return None
    total = sum(costs.values()) * COPIES
    fewest = max(1, int(total / BUSY_MAX))
    for count in range(fewest, 8 * fewest + 8):
        if _busiest(works, count, speeds) <= BUSY_MAX + _ROUNDING:
            return count
    return None


def _name(text: str) -> str:
    """A name that is independent of the task's cost."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _busiest(works: tuple[Work, ...], count: int, speeds: Sequence[float]) -> float:
    nodes = tuple(
        PlannedNode(f"n{at:03}", f"n{at:03}", capacity=speeds[at % len(speeds)])
        for at in range(count)
    )
    weights = {work.name: work.weight for work in works}
    settings = PlannerSettings(stable_s=0.0, tasks_max=len(works))
    planned = plan(Problem(nodes, works, settings=settings))
    cores = {node.boot: 0.0 for node in nodes}
    for assignment in planned.assignments:
        weight = weights[assignment.subscription] / 1_000
        for target in assignment.targets:
            cores[target.boot] += weight * len(target.partitions) / PARTITIONS
    return max(cores[node.boot] / node.capacity for node in nodes)
