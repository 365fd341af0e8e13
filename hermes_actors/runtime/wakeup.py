"""A flag that one task waits for and any code sets, from either loop; a set is never lost."""

import trio

# Shorter sleeps might not advance a clock at all, and the task would spin.
_SLEEP_MIN_S = 1e-6


class Wakeup:
    """`wait` returns once `set` has been called since the last `wait`, or after its timeout.

    `is_set`: another `set` before the next `wait` would change nothing.
    """

    __slots__ = ("_event", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._event: trio.Event | None = None

    def set(self) -> None:
        """Wake the waiting task, or let the next `wait` return at once."""
        self.is_set = True
        if self._event is not None:
            self._event.set()

    async def wait(self, timeout_s: float = float("inf")) -> None:
        """Wait for `set`, at most `timeout_s`; always a checkpoint."""
        if self.is_set:
            await trio.lowlevel.checkpoint()
        else:
            self._event = trio.Event()
            with trio.move_on_after(max(timeout_s, _SLEEP_MIN_S)):
                await self._event.wait()
            self._event = None
        self.is_set = False
