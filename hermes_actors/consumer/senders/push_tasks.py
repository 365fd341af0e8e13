"""The trio tasks of a sender: bounded in number, with exactly one outcome for each push.

An unexpected exception fails one push and is logged with its traceback. Other pushes go on.
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
        """Run `work` and call `done` with its outcome. CLOSED if the task was cancelled or the
        tasks are closed, OVERLOADED if too many tasks run.
        """
        if self._is_closed:
            # A closed nursery accepts no tasks.
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
        """Cancel the subscription's tasks. Each ends with CLOSED, later."""
        for scope in self._scopes.get(subscription, {}):
            scope.cancel()

    def close(self) -> None:
        """Accept no more tasks. The running ones end when the nursery is cancelled."""
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
        # Any exception: no endpoint's bytes may end the pushes of others.
        except Exception as error:
            _logger.error("a push failed unexpectedly: %r", error, exc_info=error)
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
    # A consumer's bug must not end other subscriptions' pushes.
    except Exception as error:
        _logger.error("an outcome could not be handled: %r", error, exc_info=error)
