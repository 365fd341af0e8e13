"""CPU time for what a tenant may make large: counted in steps, told by a clock, and then over.

A budget is asked after each step of work that is short by itself. It looks at the clock now and
then, rests where it runs in a thread, and ends the work when the time is used up.
"""

from collections.abc import Callable

LOOP_BYTES_MAX = 65_536
"""A larger body is decoded in a thread: one decoding cannot be interrupted."""

LOOK_EVERY = 16
"""Steps between two looks at the clock: none takes more than a tenth of a millisecond."""

_SLICE_S = 0.0005
"""How long a thread works before it lets the loop run."""


class BudgetSpent(Exception):
    """The work is given up: it would take more time, or more memory, than it may. `used_s` is the
    CPU time that it has had.
    """

    def __init__(self, reason: str, used_s: float = 0.0) -> None:
        super().__init__(reason)
        self.used_s = used_s


class Budget:
    """The CPU time of one piece of work, which may take `limit_s` by the clock `cpu_s`.

    On the loop (`rest` None) the clock starts with the first look. In a thread (`is_aside`) it
    starts now; after each half of a millisecond `rest` is called with `rests` times what was used,
    and with as many times `owed_s`, which was used before.
    """

    __slots__ = (
        "_began_s",
        "_cpu_s",
        "_limit_s",
        "_rest",
        "_rested_at_s",
        "_rests",
        "_steps",
        "is_aside",
        "used_s",
    )

    def __init__(
        self,
        limit_s: float,
        cpu_s: Callable[[], float],
        rest: Callable[[float], None] | None = None,
        *,
        rests: float = 0.0,
        owed_s: float = 0.0,
    ) -> None:
        self.is_aside = rest is not None
        self._limit_s = limit_s
        self._cpu_s = cpu_s
        self._rest = rest
        self._rests = rests
        self._steps = 0
        self.used_s = 0.0
        """The CPU time used until the clock was looked at last."""
        self._began_s = -1.0
        if self.is_aside:
            self._began_s = cpu_s()
            self._rested_at_s = self._began_s - owed_s

    def spend(self, steps: int = 1) -> None:
        """Some short steps have been made. Raises BudgetSpent."""
        self._steps += steps
        if self._steps >= LOOK_EVERY:
            self.look()

    def look(self) -> float:
        """Look at the clock now: how much is left, in seconds. Raises BudgetSpent."""
        self._steps = 0
        now_s = self._cpu_s()
        if self._began_s < 0:
            self._began_s = now_s
        if self._rest is not None:
            self._give_way(now_s)
        self.used_s = used_s = now_s - self._began_s
        if used_s >= self._limit_s:
            raise BudgetSpent(f"took more than {self._limit_s * 1_000:g} ms of CPU", used_s)
        return self._limit_s - used_s

    def spent_in(self, place: str) -> BudgetSpent:
        """The error of one step that was given all that was left, and used it up."""
        self.used_s = self._limit_s
        text = f"used up the message's {self._limit_s * 1_000:g} ms of CPU; it ended in {place}"
        return BudgetSpent(text, self._limit_s)

    def finish(self) -> None:
        """The work is done: rest for what has not been rested for."""
        if self._rest is not None:
            self._give_way(self._cpu_s())

    def _give_way(self, now_s: float) -> None:
        took_s = now_s - self._rested_at_s
        if took_s >= _SLICE_S and self._rest is not None:
            self._rest(took_s * self._rests)
            self._rested_at_s = now_s
