"""A node is killed or stopped: how long its lanes wait for another node, and what comes twice."""

import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from failing_over.trial import Trial, in_thread

Choose = Callable[[int], Awaitable[int]]
"""Chooses the node to lose, by the number of the round."""

_BACK_WITHIN_S = 60.0
_COMMITTED_AFTER_S = 2.0
"""One commit interval, plus one for a slow machine."""


async def measure(
    trial: Trial, choose: Choose, *, rounds: int, is_graceful: bool, within_s: float
) -> dict[str, Any]:
    """In each round: lose a node, wait until its lanes are delivered, restart it, wait until it
    delivers.
    """
    made = []
    async with trial.open():
        for number in range(rounds):
            await trio.sleep(trial.rest_s)
            index = await choose(number)
            made.append(await _lose(trial, index, is_graceful=is_graceful, within_s=within_s))
        await trio.sleep(trial.rest_s)
    _count_duplicates(made, trial.ledger.duplicates)
    lanes = [each for row in made for each in row.pop("each_s")]
    waits = [each for row in made for each in row.pop("each_waited_s")]
    bound = sum(row["lanes"] for row in made) * trial.load.lane_rate_per_s * _COMMITTED_AFTER_S
    return {
        "rounds": made,
        "lanes": len(lanes),
        "never": sum(row["never"] for row in made),
        "elsewhere_median_s": _median(lanes),
        "elsewhere_worst_s": max(lanes, default=None),
        "worst_of_round_median_s": _median([row["worst_s"] for row in made if row["lanes"]]),
        "waited_median_s": _median(waits),
        "waited_worst_s": max(waits, default=None),
        "duplicates_bound": round(bound),
        **trial.account(),
    }


async def _lose(trial: Trial, index: int, *, is_graceful: bool, within_s: float) -> dict[str, Any]:
    node, ledger = trial.fleet.consumers[index], trial.ledger
    await trial.collect()
    twice, at_s = ledger.duplicates, time.perf_counter()
    lanes = ledger.lanes_of(index, at_s)
    await in_thread(node.stop if is_graceful else node.kill)
    gone_s = time.perf_counter() - at_s

    def is_taken_over() -> bool:
        return len(ledger.taken_over_s(lanes, index, at_s)) == len(lanes)

    await trial.until(is_taken_over, within_s)
    taken = ledger.taken_over_s(lanes, index, at_s)
    await in_thread(trial.fleet.begin, node)
    await in_thread(node.wait_ready)
    ready_s = time.perf_counter()
    await trial.until(lambda: bool(ledger.times_from(index, at_s + gone_s)), _BACK_WITHIN_S)
    back = ledger.times_from(index, at_s + gone_s)
    waited = ledger.waited_s(lanes, at_s - 1.0, at_s + within_s)
    return {
        "node": node.name,
        "subscriptions": len({lane.subscriber for lane in lanes}),
        "lanes": len(lanes),
        "never": len(lanes) - len(taken),
        "each_s": list(taken.values()),
        "median_s": _median(list(taken.values())),
        "worst_s": max(taken.values(), default=None),
        "each_waited_s": list(waited.values()),
        "waited_worst_s": max(waited.values(), default=None),
        "gone_s": round(gone_s, 3),
        "back_after_ready_s": round(back[0] - ready_s, 3) if back else None,
        "duplicates": twice,
    }


def _count_duplicates(rounds: list[dict[str, Any]], at_the_end: int) -> None:
    """Count duplicates from the loss in one round until that in the next, instead of totals."""
    ends = [each["duplicates"] for each in rounds[1:]] + [at_the_end]
    for row, end in zip(rounds, ends, strict=True):
        row["duplicates"] = end - row["duplicates"]


def _median(values: list[Any]) -> float | None:
    known = [each for each in values if each is not None]
    return statistics.median(known) if known else None
