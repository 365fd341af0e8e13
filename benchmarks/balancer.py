"""How evenly the planner balances clusters and how many tasks it moves, compared with other
algorithms and bounds.

    python benchmarks/balancer.py [--parts even,steps,joins,losses,days,throttled]
        [--nodes 5,10,20,50] [--seeds 20] [--slow-seeds 3] [--hours 24] [--json FILE] [--svg FILE]

Everything is synthetic and computed in this process: no node runs. The clusters start balanced by
count. Hermes' two strategies are written from a description of them, including their defect.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from asking import machine, names_of, numbers
from balancing import changes, day, even, plot, report, throttled
from balancing.clusters import Shape, blind, make, problem

SHAPES = (
    Shape(5, 100, "log-normal 1.5"),
    Shape(10, 100, "log-normal 1.0"),
    Shape(10, 100, "log-normal 2.0"),
    Shape(10, 300, "Zipf 1.0"),
    Shape(20, 1_000, "log-normal 1.5"),
    Shape(20, 1_000, "log-normal 1.5", is_mixed=True),
    Shape(50, 3_000, "Zipf 0.8"),
    Shape(50, 3_000, "log-normal 1.5", is_mixed=True),
    Shape(50, 3_000, "log-normal 1.5"),
)
FIRST_SEED = 1_000
PARTS = ("even", "steps", "joins", "losses", "days", "throttled")


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    """Measure all requested parts."""
    results: dict[str, Any] = {part: [] for part in PARTS}
    results |= {"seeds": asked.seeds, "first_seed": FIRST_SEED}
    results["machine"] = machine()
    shapes = [shape for shape in SHAPES if shape.nodes in asked.nodes]
    seeds = range(FIRST_SEED, FIRST_SEED + asked.seeds)
    slow = range(FIRST_SEED, FIRST_SEED + min(asked.seeds, asked.slow_seeds))
    for part in asked.parts:
        print(part, file=sys.stderr, flush=True)
        results[part] = list(_rows(part, shapes, seeds, slow, asked.hours))
    return results


def _rows(
    part: str, shapes: list[Shape], seeds: range, slow: range, hours: float
) -> list[dict[str, Any]]:
    alike = [shape for shape in shapes if not shape.is_mixed]
    if part == "even":
        return [row for shape in shapes for row in even.measure(shape, seeds, slow)]
    if part == "steps":
        return [row for shape in shapes[-1:] for row in _steps(shape, seeds)]
    if part == "joins":
        return [row for shape in alike for row in changes.joins(shape, seeds, slow)]
    if part == "losses":
        return [changes.losses(shape, seeds) for shape in alike]
    if part == "days":
        shape = Shape(10, 300, "log-normal 1.5")
        return [
            day.live(shape, FIRST_SEED, swing, hours, name)
            for swing in (0.0, 0.5)
            for name in ("ours", "Hermes weighted")
        ]
    return [
        throttled.run(
            Shape(nodes, 20 * nodes, "log-normal 1.0"),
            FIRST_SEED,
            round(10 * hours),
            has_rival=has_rival,
        )
        for has_rival in (False, True)
        for nodes in sorted({shape.nodes for shape in shapes})
    ]


def _steps(shape: Shape, seeds: range) -> list[dict[str, Any]]:
    changes.without_collector()
    rows = []
    for name in ("nothing owned", "balanced by count"):
        totals, longest = [], []
        for seed in seeds:
            cluster = make(shape, seed)
            placement = None if name == "nothing owned" else blind(cluster, seed)
            _, total_ms, longest_ms = even.longest_step(problem(cluster, placement))
            totals.append(total_ms)
            longest.append(longest_ms)
        rows.append(
            {
                "shape": shape.name,
                "from": name,
                "total_ms": max(totals),
                "longest_ms": max(longest),
            }
        )
    return rows


def main() -> None:
    """Run the requested measurements."""
    asked = arguments()
    results = measure(asked)
    print("\n".join(report.lines(results)))
    if asked.json:
        asked.json.write_text(json.dumps(results, indent=2) + "\n")
    if asked.svg and results["even"]:
        asked.svg.write_text(plot.draw(results["even"]))


def arguments() -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--parts", type=names_of(PARTS), default=list(PARTS))
    add("--nodes", type=numbers, default=[5, 10, 20, 50], help="clusters of so many nodes")
    add("--seeds", type=int, default=20)
    add("--slow-seeds", type=int, default=3, help="of them for what takes seconds each")
    add("--hours", type=float, default=24.0, help="how long a simulated day is")
    add("--json", type=Path, metavar="FILE")
    add("--svg", type=Path, metavar="FILE")
    asked = parser.parse_args()
    if asked.seeds < 1 or asked.slow_seeds < 1:
        parser.error("--seeds and --slow-seeds: at least 1")
    return asked


if __name__ == "__main__":
    main()
