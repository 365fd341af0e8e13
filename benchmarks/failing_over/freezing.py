"""A node, or the broker with the coordination log, is paused for a while and then resumed."""

import time
from typing import Any

import trio

from failing_over.coordination import Witness
from failing_over.trial import Trial, in_thread

_BACK_WITHIN_S = 60.0
_RESUMED_WITHIN_S = 60.0
_AFTER_S = 5.0


async def freeze_node(trial: Trial, witness: Witness, index: int, still_s: float) -> dict[str, Any]:
    """Pause a node with SIGSTOP and resume it: what it sends for its old life, and when it is back.

    `late` are the deliveries from its resumption until its new life, with a new boot id, owned
    anything.
    """
    async with trial.open():
        await trio.sleep(trial.rest_s)
        node, ledger = trial.fleet.consumers[index], trial.ledger
        await trial.collect()
        twice, at_s = ledger.duplicates, time.perf_counter()
        lanes = ledger.lanes_of(index, at_s)
        await in_thread(node.pause)
        await trio.sleep(still_s)
        await trial.collect()
        taken = ledger.taken_over_s(lanes, index, at_s)
        elsewhere_twice = ledger.duplicates - twice
        woke_s = time.perf_counter()
        await in_thread(node.resume)
        owned_s: float | None = None
        with trio.move_on_after(_BACK_WITHIN_S):
            while owned_s is None:
                await trio.sleep(0.5)
                owned_s = await witness.owned_again_s(node.name, woke_s)
        until_s = owned_s if owned_s is not None else time.perf_counter()
        await trial.until(lambda: bool(ledger.times_from(index, until_s)), _BACK_WITHIN_S)
        back = ledger.times_from(index, until_s)
        late = ledger.times_from(index, woke_s, until_s)
        await trio.sleep(_AFTER_S)
    return {
        "node": node.name,
        "still_s": still_s,
        "subscriptions": len({lane.subscriber for lane in lanes}),
        "lanes": len(lanes),
        "never": len(lanes) - len(taken),
        "elsewhere_worst_s": max(taken.values(), default=None),
        "duplicates_of_the_stop": elsewhere_twice,
        "late": len(late),
        "late_last_s": round(late[-1] - woke_s, 3) if late else None,
        "owned_again_s": round(owned_s - woke_s, 3) if owned_s is not None else None,
        "back_s": round(back[0] - woke_s, 3) if back else None,
        **trial.account(),
    }


async def freeze_broker(
    trial: Trial, witness: Witness, broker: int, still_s: float
) -> dict[str, Any]:
    """Pause a broker with SIGSTOP and resume it: deliveries pause, then every lane goes on where it
    was.
    """
    async with trial.open():
        await trio.sleep(trial.rest_s)
        ledger, kafka = trial.ledger, trial.fleet.kafka.brokers[broker]
        await trial.collect()
        at_s = time.perf_counter()
        lanes = list(ledger.owners(at_s))
        await in_thread(kafka.pause)
        await trio.sleep(still_s)
        await trial.collect()
        woke_s = time.perf_counter()
        during = [each.at_s for came in ledger.lanes.values() for each in came if each.at_s > at_s]
        await in_thread(kafka.resume)

        def is_resumed() -> bool:
            return len(ledger.resumed_s(lanes, woke_s)) == len(lanes)

        await trial.until(is_resumed, _RESUMED_WITHIN_S)
        resumed = sorted(ledger.resumed_s(lanes, woke_s).values())
        await trio.sleep(_AFTER_S)
        await trial.collect()
        end_s = time.perf_counter()
        moves = ledger.moves(at_s, end_s)
        silent_s = ledger.silent_s(at_s, end_s)
        reasons = await witness.moves(at_s)
    return {
        "still_s": still_s,
        "lanes": len(lanes),
        "deliveries_meanwhile": len(during),
        "last_meanwhile_s": round(max(during) - at_s, 3) if during else None,
        "silent_s": round(silent_s, 3),
        "first_again_s": round(resumed[0], 3) if resumed else None,
        "all_again_s": round(resumed[-1], 3) if len(resumed) == len(lanes) else None,
        "moves": sum(moves.values()),
        "reasons": reasons,
        **trial.account(),
    }
