"""Filters' work beside the loop: large bodies, and questions that take more than a moment.

On the loop all subscriptions of a node together have as much time in one turn as a message has:
what comes then waits for a turn of its own, one after the other.

Two lanes, so that nobody who sends large messages waits for those whose filters are costly. In the
costly lane one thread works, in slices of half a millisecond, and rests nine times as long after
each: whatever the tenants of a node configure and send, it has a tenth of a core there.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import trio

from hermes_actors.config import FiltersConfig
from hermes_actors.filters.budget import LOOP_BYTES_MAX, Budget, BudgetSpent
from hermes_actors.filters.compiled import is_soon_compiled
from hermes_actors.model.subscription import Filter
from hermes_actors.runtime.threads import Threads

T = TypeVar("T")

RESTS = 9.0
"""So many times as long as it has worked does the costly lane's thread rest."""

COMPILE_MAX_S = 2.0
"""CPU time for compiling one list of filters: ten times what the bounds of their size allow."""

_RESTS_OF_LARGE = 3.0
_AT_ONCE = 1
"""Subscriptions that are asked in one lane at once; the others wait, first come, first served."""


class Aside:
    """The budgets of one part of a node, and its lanes."""

    def __init__(self, config: FiltersConfig, threads: Threads) -> None:
        self._loop_s = config.loop_cpu_ms / 1_000
        self._thread_s = config.thread_cpu_ms / 1_000
        self._threads = threads
        self._large = trio.CapacityLimiter(_AT_ONCE)
        self._costly = trio.CapacityLimiter(_AT_ONCE)
        # Only one list is compiled on the loop between two turns of others, or one message looked
        # at for which this turn had no time left.
        self._turn = trio.Lock()
        self._turn_used_s = 0.0

    @property
    def waiting(self) -> int:
        """How many wait for the costly lane, or are in it."""
        costly = self._costly.statistics()
        return costly.tasks_waiting + costly.borrowed_tokens

    def on_loop(self) -> Budget:
        """The budget of one message on the loop."""
        return Budget(self._loop_s, self._threads.cpu_s)

    @property
    def is_turn_spent(self) -> bool:
        """True when budgets on the loop have used what there is for them in this turn: see
        `next_turn`.
        """
        return self._turn_used_s >= self._loop_s

    def count(self, budget: Budget) -> None:
        """Count a used budget of the loop towards this turn."""
        self._turn_used_s += budget.used_s

    async def next_turn(self) -> None:
        """Wait for a turn of the loop in which nobody else who waits here does anything."""
        async with self._turn:
            await trio.lowlevel.checkpoint()
            self._turn_used_s = 0.0

    async def ask(self, work: Callable[[Budget], T], body: bytes, spent: BudgetSpent) -> T:
        """Return the answer of `work`, run in a thread, for the message with this body, after the
        loop's budget was `spent`.

        Raises what it raises: BudgetSpent when a thread's budget is spent too.
        """
        if len(body) > LOOP_BYTES_MAX:
            try:
                return await self._run(work, self._large, self._loop_s, rests=_RESTS_OF_LARGE)
            except BudgetSpent as error:
                spent = error
        owed_s = spent.used_s
        return await self._run(work, self._costly, self._thread_s, rests=RESTS, owed_s=owed_s)

    async def compile(
        self, wanted: Sequence[Filter], make: Callable[[Sequence[Filter], Budget], T]
    ) -> T:
        """Return what `make` compiles of the filters, in a thread if that takes long.

        Raises what it raises.
        """
        if is_soon_compiled(wanted):
            async with self._turn:
                return make(wanted, Budget(COMPILE_MAX_S, self._threads.cpu_s))

        def work(budget: Budget) -> T:
            return make(wanted, budget)

        return await self._run(work, self._costly, COMPILE_MAX_S, rests=RESTS)

    async def _run(
        self,
        work: Callable[[Budget], T],
        lane: trio.CapacityLimiter,
        limit_s: float,
        *,
        rests: float,
        owed_s: float = 0.0,
    ) -> T:
        threads = self._threads

        def in_thread() -> T:
            budget = Budget(limit_s, threads.cpu_s, threads.rest, rests=rests, owed_s=owed_s)
            try:
                return work(budget)
            finally:
                budget.finish()

        return await threads.run(in_thread, lane)
