"""All consuming nodes are restarted one after another: how often each lane moves."""

import time
from collections import Counter
from typing import Any

import trio

from failing_over.coordination import Witness
from failing_over.trial import Trial, in_thread


async def restart_all(
    trial: Trial, witness: Witness, pause_s: float, after_s: float
) -> dict[str, Any]:
    """Stop each node `pause_s` after the previous one is ready again; count moves until `after_s`
    after the last.
    """
    async with trial.open():
        await trio.sleep(trial.rest_s)
        ledger = trial.ledger
        await trial.collect()
        at_s = time.perf_counter()
        stops = []
        for node in trial.fleet.consumers:
            began_s = time.perf_counter()
            await in_thread(node.stop)
            stops.append(time.perf_counter() - began_s)
            await in_thread(trial.fleet.begin, node)
            await in_thread(node.wait_ready)
            await trio.sleep(pause_s)
        took_s = time.perf_counter() - at_s
        # Moves by the leader after the last restart count, too.
        await trio.sleep(after_s)
        await trial.collect()
        end_s = time.perf_counter()
        moves = ledger.moves(at_s, end_s)
        reasons = await witness.moves(at_s)
        waited = ledger.waited_s(list(ledger.lanes), at_s, end_s - 2.0)
    return {
        "nodes": len(stops),
        "pause_s": pause_s,
        "took_s": round(took_s, 2),
        "stops_s": [round(each, 3) for each in stops],
        "lanes": len(moves),
        "moves": dict(sorted(Counter(moves.values()).items())),
        "reasons": reasons,
        "moves_worst": max(moves.values(), default=0),
        "waited_worst_s": max(waited.values(), default=None),
        **trial.account(),
    }
