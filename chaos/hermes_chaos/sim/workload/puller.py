"""Clients of pull subscriptions: they acknowledge, give back, extend, dawdle, and forget."""

import random
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import TypeVar

import trio

from hermes_actors.consumer.pulling.dispatch import PullDispatch
from hermes_actors.consumer.pulling.hand_outs import HandOut
from hermes_actors.errors import Unavailable
from hermes_chaos.sim.cluster import Cluster
from hermes_chaos.sim.history.events import (
    Answer,
    Delivery,
    History,
)
from hermes_chaos.sim.history.pulling import Acknowledged, HandedOut, LetGo
from hermes_chaos.sim.history.trace import Trace
from hermes_chaos.sim.workload.plans import SubscriptionPlan

T = TypeVar("T")

_AT_ONCE = 5
_WAIT_S = 1.0
_PAUSE_S = 0.1
_CALL_MAX_S = 2.0


class Habit(StrEnum):
    """How a client treats one message."""

    DONE = "done"
    SLOW = "slow"  # acknowledges about when the deadline passes
    LATE = "late"  # acknowledges long after it
    FORGETS = "forgets"  # loses the message, as a client does that is killed
    NACKS = "nacks"
    EXTENDS = "extends"


# Most are late, because only few of them meet a hand-over.
_FAULTS = (Habit.SLOW, *[Habit.LATE] * 4, Habit.FORGETS, Habit.NACKS, Habit.EXTENDS)
_FAULT_RATE = 0.5


class PullClient:
    """One of several clients of a subscription in one datacentre. After `heal` it only
    acknowledges.
    """

    def __init__(
        self,
        plan: SubscriptionPlan,
        dc: str,
        deadline_s: float,
        rng: random.Random,
        cluster: Cluster,
        history: History,
        trace: Trace,
    ) -> None:
        self._plan = plan
        self._dc = dc
        self._deadline_s = deadline_s
        self._rng = rng
        self._cluster = cluster
        self._history = history
        self._trace = trace
        self._is_calm = False

    def heal(self) -> None:
        """Process and acknowledge every message from now on."""
        self._is_calm = True

    async def run(self) -> None:
        """Pull until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                outs = await self._ask(self._pull) or ()
                for out in outs:
                    nursery.start_soon(self._treat, out)
                if not outs:
                    await trio.sleep(_PAUSE_S)

    async def _pull(self, hand_out: PullDispatch, life: str) -> Sequence[HandOut]:
        outs = await hand_out.pull(self._rng.randint(1, _AT_ONCE), _WAIT_S)
        at_s = trio.current_time()
        for out in outs:
            delivery = out.delivery
            ack_id, message = out.ack_id, delivery.first
            self._history.tell(
                HandedOut(
                    life,
                    self._plan.full_name,
                    (ack_id.partition, ack_id.offset),
                    ack_id.epoch,
                    str(ack_id),
                    (message.key or b"").decode() if self._plan.policy.get("ordered") else "",
                    out.until_s,
                    at_s,
                )
            )
        return outs

    async def _treat(self, out: HandOut) -> None:
        rng, message, ids = self._rng, out.delivery.first, [str(out.ack_id)]
        habit = Habit.DONE
        if not self._is_calm and rng.random() < _FAULT_RATE:
            habit = rng.choice(_FAULTS)
            self._history.faults[f"client {habit.value}"] += 1
        self._trace.note(self._dc, f"pulled {self._plan.full_name} {message.id} {habit.value}")
        is_processed = habit not in (Habit.FORGETS, Habit.NACKS)
        name, body = self._plan.full_name, message.body
        self._history.tell(Delivery(self._dc, name, message.id, body, is_processed))
        await trio.sleep(rng.uniform(0.001, 0.05))
        if habit is Habit.FORGETS:
            return
        if habit is Habit.NACKS:
            delay_ms = rng.choice((None, 0, 300))
            self._history.tell(LetGo(ids[0]))
            await self._ask(lambda hand_out, _: hand_out.give_back(ids, delay_ms))
            return
        if habit is Habit.EXTENDS:
            self._history.tell(LetGo(ids[0]))
            await self._ask(lambda hand_out, _: hand_out.extend(ids, 2 * self._deadline_s))
            await trio.sleep(self._deadline_s * rng.uniform(0.5, 1.5))
        elif habit is not Habit.DONE:
            slowness = (0.8, 1.2) if habit is Habit.SLOW else (1.5, 6.0)
            await trio.sleep(self._deadline_s * rng.uniform(*slowness))
        # It may be settled from now on, also if no answer comes.
        self._history.tell(LetGo(ids[0]))
        self._history.tell(Answer(self._dc, name, message.id, 200, at_s=trio.current_time()))
        refused = await self._ask(lambda hand_out, _: hand_out.acknowledge(ids))
        if refused is not None:
            is_taken = not refused
            self._history.tell(
                Acknowledged(
                    self._dc, name, out.ack_id.partition, out.ack_id.epoch, ids[0], is_taken
                )
            )

    async def _ask(self, act: Callable[[PullDispatch, str], Awaitable[T]]) -> T | None:
        """Have the present owner answer; None if there is none, or it does not answer."""
        for node in self._cluster.nodes.values():
            if node.dc == self._dc and node.owns(self._plan.full_name):
                try:
                    with trio.move_on_after(_CALL_MAX_S):
                        return await node.hand_out(self._plan.full_name, act)
                except Unavailable:
                    return None
        return None
