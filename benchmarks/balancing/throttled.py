"""One node at half its speed: how long until it is as busy as the others, and what moves for it."""

import random
from typing import Any

from msgspec.structs import replace

from balancing.clusters import Shape, make, placement_after, problem
from balancing.day import with_owners
from balancing.even import ours_anew
from hermes_actors.balancer.workload.planner import plan
from hermes_actors.balancer.workload.problem import Settings
from hermes_actors.balancer.workload.speeds import NodeCost, Speeds

ROUND_S = 30.0
BUSY = 0.5
AS_BUSY = 1.1


def run(shape: Shape, seed: int, minutes: int) -> dict[str, Any]:
    """From the minute on in which the first node becomes half as fast."""
    cluster = make(shape, seed)
    rng = random.Random(seed)
    now = problem(cluster, ours_anew(cluster, []), Settings(idle_weight=1e-6))
    speeds = Speeds()
    mean = 2 * sum(cluster.weights) / len(cluster.capacity)
    settled_min, moves, last_moves = 0.0, 0, 0
    busiest = 0.0
    rounds = int(minutes * 60 / ROUND_S)
    for number in range(rounds):
        # Two quiet minutes come first: the controller knows all nodes as equals.
        slow = 2.0 if number * ROUND_S >= 120 else 1.0
        loads = {node.boot: 0.0 for node in now.nodes}
        for work in now.works:
            for owner in work.owners:
                loads[owner.boot] += work.weight / 2
        first = now.nodes[0].boot
        cpu = {
            boot: min(1.0, BUSY * load / mean * (slow if boot == first else 1.0))
            for boot, load in loads.items()
        }
        busiest = max(cpu.values()) / (sum(cpu.values()) / len(cpu))
        if busiest > AS_BUSY:
            settled_min = (number + 1) * ROUND_S / 60 - 2
        costs = {
            boot: NodeCost(1.0, cpu[boot] * rng.uniform(0.95, 1.05), 1.0, loads[boot])
            for boot in cpu
        }
        known = speeds.update(now.now_s, costs)
        nodes = tuple(replace(node, speed=known[node.boot]) for node in now.nodes)
        before = replace(now, nodes=nodes, now_s=now.now_s + ROUND_S)
        planned = plan(before)
        moves += planned.moves
        last_moves += planned.moves * (number >= rounds // 2)
        changed = {each.subscription for each in planned.assignments}
        now = with_owners(before, placement_after(before, planned), changed)
    return {
        "shape": shape.name,
        "minutes": minutes,
        "settled_min": settled_min,
        "busiest": busiest,
        "moves": moves,
        "moves_second_half": last_moves,
    }
