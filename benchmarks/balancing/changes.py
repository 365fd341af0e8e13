"""A node more or less: how many tasks move, compared with how many must."""

import gc
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from balancing import bounds, selective, weighted
from balancing.clusters import (
    Cluster,
    Shape,
    fullest,
    ideal,
    make,
    moved,
    problem,
)
from balancing.even import ours, ours_anew
from hermes_actors.balancer.workload.planner import plan


def joins(shape: Shape, seeds: range, slow: range) -> Iterator[dict[str, Any]]:
    """A node joins a balanced cluster; fewer seeds for slow algorithms."""
    algorithms = {
        "ours": (ours_anew, ours),
        "Hermes selective": (
            lambda c, _p: selective.rebalance(c, [[] for _ in c.weights]),
            selective.rebalance,
        ),
        "Hermes weighted": (ours_anew, weighted.rebalance),
    }
    for name, (begin, algorithm) in algorithms.items():
        rows: list[tuple[int, int, float, float]] = []
        for seed in slow if name == "Hermes weighted" else seeds:
            cluster = make(shape, seed)
            start = begin(cluster, [])
            grown = Cluster((*cluster.capacity, 1.0), cluster.weights)
            after = algorithm(grown, start)
            if "selective" in name:
                least = sum(map(len, start)) // len(grown.capacity)
            else:
                least = bounds.least_moves_of_a_join(grown, start)
            got = grown.loads(after)[-1] / (sum(grown.loads(after)) / sum(grown.capacity))
            rows.append((moved(start, after), least, fullest(grown, after) / ideal(grown), got))
        yield {
            "shape": shape.name,
            "algorithm": name,
            "moves": sum(row[0] for row in rows) / len(rows),
            "least": sum(row[1] for row in rows) / len(rows),
            "times_least_worst": max(row[0] / max(1, row[1]) for row in rows),
            "over_ideal_worst": max(row[2] for row in rows),
            "newcomer_least": min(row[3] for row in rows),
        }


def losses(shape: Shape, seeds: range) -> dict[str, Any]:
    """A node of a balanced cluster is lost."""
    forced, moves, evenness = [], [], []
    for seed in seeds:
        cluster = make(shape, seed)
        before = problem(cluster, ours_anew(cluster, []))
        planned = plan(replace(before, nodes=before.nodes[1:]))
        forced.append(planned.forced)
        moves.append(planned.moves)
        evenness.append(planned.worst)
    return {
        "shape": shape.name,
        "forced": sum(forced) / len(forced),
        "moves": sum(moves) / len(moves),
        "worst": max(evenness),
    }


def without_collector() -> None:
    """As in the product: existing objects are frozen, so that no step pays for a full
    collection.
    """
    gc.collect()
    gc.freeze()
    gc.disable()
