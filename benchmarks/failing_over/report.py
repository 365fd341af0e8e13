"""A part's figures as lines, compared with the times that follow from Hermes' constants."""

from collections.abc import Iterator
from typing import Any

HERMES_LOST_S = "170 to 370"
"""From the death of a consumers node until its subscriptions are consumed elsewhere: the session
timeout, then the balancing interval and the new assignment.
"""

_LOST = {
    "kill": "kill -9 of a node",
    "leader": "kill -9 of the leader",
    "stop": "graceful stop of a node",
}


def part(name: str, found: dict[str, Any]) -> Iterator[str]:
    """All lines about a part."""
    others = {"freeze": _freeze, "broker": _broker, "rolling": _rolling, "balance": _balance}
    lines = _lost if name in _LOST else others[name]
    yield ""
    yield from lines(name, found)
    if "missing" in found:
        yield (
            f"  {found['accepted']} accepted of {found['published']}, "
            f"{found['deliveries']} deliveries to {found['subscriptions']} subscriptions, "
            f"missing {found['missing']}, duplicates {found['duplicates']}"
            + (
                f" (at most {found['duplicates_bound']}: what a lost node delivered in its last "
                "two seconds)"
                if "duplicates_bound" in found
                else ""
            )
        )


def _lost(name: str, found: dict[str, Any]) -> Iterator[str]:
    rounds = found["rounds"]
    yield f"{_LOST[name]}, {len(rounds)} times; Hermes: {HERMES_LOST_S} s"
    yield (
        f"{'node':14}{'subscr.':>8}{'lanes':>7}{'median s':>10}{'worst s':>9}{'waited s':>10}"
        f"{'gone s':>8}{'back s':>8}{'twice':>7}{'never':>7}"
    )
    for row in rounds:
        yield (
            f"{row['node']:14}{row['subscriptions']:8}{row['lanes']:7}{_s(row['median_s']):>10}"
            f"{_s(row['worst_s']):>9}{_s(row['waited_worst_s']):>10}{_s(row['gone_s']):>8}"
            f"{_s(row['back_after_ready_s']):>8}{row['duplicates']:7}{row['never']:7}"
        )
    yield (
        f"  delivered elsewhere after: median {_s(found['elsewhere_median_s'])} s, worst "
        f"{_s(found['elsewhere_worst_s'])} s, the worst lane of a round in the median "
        f"{_s(found['worst_of_round_median_s'])} s; a message waited at most "
        f"{_s(found['waited_worst_s'])} s; never within the time: {found['never']} lanes"
    )


def _freeze(_name: str, found: dict[str, Any]) -> Iterator[str]:
    yield (
        f"{found['node']} stood still for {found['still_s']:g} s with {found['subscriptions']} "
        f"subscriptions ({found['lanes']} lanes); Hermes: {HERMES_LOST_S} s"
    )
    yield (
        f"  delivered elsewhere after at most {_s(found['elsewhere_worst_s'])} s, never "
        f"{found['never']} lanes; {found['duplicates_of_the_stop']} came twice by then"
    )
    yield (
        f"  after it woke it sent {found['late']} messages before it owned anything anew, the "
        f"last after {_s(found['late_last_s'])} s; owned after {_s(found['owned_again_s'])} s, "
        f"delivering after {_s(found['back_s'])} s"
    )


def _broker(_name: str, found: dict[str, Any]) -> Iterator[str]:
    yield f"the broker of the coordination log stood still for {found['still_s']:g} s"
    yield (
        f"  {found['deliveries_meanwhile']} deliveries meanwhile, the last after "
        f"{_s(found['last_meanwhile_s'])} s; nothing for {_s(found['silent_s'])} s"
    )
    yield (
        f"  when it went on: the first lane after {_s(found['first_again_s'])} s, all "
        f"{found['lanes']} after {_s(found['all_again_s'])} s; lanes that moved: {found['moves']}"
    )
    yield from _reasons(found)


def _rolling(_name: str, found: dict[str, Any]) -> Iterator[str]:
    moves = ", ".join(f"{count} lanes {times}" for times, count in found["moves"].items())
    yield f"rolling restart of {found['nodes']} nodes in {found['took_s']:g} s"
    yield (
        f"  stops took {', '.join(map(_s, found['stops_s']))} s; moves: {moves} times, at most "
        f"{found['moves_worst']}; a message waited at most {_s(found['waited_worst_s'])} s"
    )
    yield from _reasons(found)


def _reasons(found: dict[str, Any]) -> Iterator[str]:
    for reason, times in found["reasons"].items():
        yield f"  {times} x {reason}"


def _balance(_name: str, found: dict[str, Any]) -> Iterator[str]:
    yield (
        f"{found['deliveries']} deliveries, one node with half a core by {found['throttled_by']}; "
        f"missing {found['missing']}, duplicates {found['duplicates']}, a message waited at most "
        f"{_s(found['waited_worst_s'])} s"
    )
    for node in found["nodes"]:
        yield (
            f"  {node['node']:14}{node['tasks']:4} tasks  {node['cpu_cores']:.3f} of "
            f"{node['budget_cores']:g} cores: {100 * node['busy']:.0f} %"
        )
    yield f"  the busiest is {found['busy_max_to_mean']:.2f} x the mean; moves: {found['moves']}"
    for key, nodes in (
        ("nodes_needed", "every third one with half a core"),
        ("nodes_needed_of_equal_ones", "all alike"),
    ):
        yield (
            f"nodes for {found['copies']} times these {found['tasks_measured']} subscriptions "
            f"({found['task_cpu_sum']} cores as measured), none above "
            f"{100 * found['busy_max']:.0f} %, {nodes}: {found[key]} (computed)"
        )


def _s(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
