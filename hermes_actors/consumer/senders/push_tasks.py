"""The trio tasks of a sender: bounded in number, and each push ends with exactly one outcome.

An exception that no sender expects fails one push and is logged with its traceback. It ends nothing
that pushes for others.
"""

import logging
from collections.abc import Awaitable, Callable

import trio

from hermes_actors.consumer.senders.sender import Done, Failure, SendOutcome

_logger = logging.getLogger(__name__)


class PushTasks:
    """Tasks in a nursery, at most `tasks_max`. `start` works on both event loops."""

    def __init__(self, nursery: trio.Nursery, tasks_max: int) -> None:
        self._nursery = nursery
        self._tasks_max = tasks_max
        self._count = 0
        # The inner dictionaries serve as ordered sets.
        self._scopes: dict[str, dict[trio.CancelScope, None]] = {}
        self._is_closed = False

    def start(
        self, subscription: str, work: Callable[[], Awaitable[SendOutcome]], done: Done
    ) -> None:
        """Call `done` later with the outcome of `work`. The outcome is CLOSED when the task was
        cancelled or comes too late, OVERLOADED when too many tasks run.
        """
        if self._is_closed:
            # A closed nursery takes no tasks.
            trio.lowlevel.spawn_system_task(_tell, done, SendOutcome(0, "", Failure.CLOSED))
        elif self._count >= self._tasks_max:
            outcome = SendOutcome(0, "", Failure.OVERLOADED, "too many pushes wait")
            self._nursery.start_soon(_tell, done, outcome)
        else:
            self._count += 1
            scope = trio.CancelScope()
            self._scopes.setdefault(subscription, {})[scope] = None
            self._nursery.start_soon(self._run, subscription, scope, work, done)

    def forget(self, subscription: str) -> None:
        """Cancel the subscription's tasks; each ends with CLOSED, later."""
        for scope in self._scopes.get(subscription, {}):
            scope.cancel()

    def close(self) -> None:
        """Take no more tasks. The running ones end when the nursery is cancelled."""
        self._is_closed = True

    async def _run(
        self,
        subscription: str,
        scope: trio.CancelScope,
        work: Callable[[], Awaitable[SendOutcome]],
        done: Done,
    ) -> None:
        outcome = SendOutcome(0, "", Failure.CLOSED)
        try:
            with scope:
                outcome = await work()
        # All of them: no endpoint's bytes may end what pushes for all.
        except Exception as error:
            _logger.error("a push met what it did not expect: %r", error, exc_info=error)
            detail = f"the sender failed: {type(error).__name__}"
            outcome = SendOutcome(0, "", Failure.MALFORMED, detail)
        finally:
            self._count -= 1
            scopes = self._scopes[subscription]
            del scopes[scope]
            if not scopes:
                del self._scopes[subscription]
            await _tell(done, outcome)


async def _tell(done: Done, outcome: SendOutcome) -> None:
    try:
        done(outcome)
    # A consumer whose code fails must not take the other subscriptions' pushes down.
    except Exception as error:
        _logger.error("an outcome could not be taken in: %r", error, exc_info=error)
