"""A one-for-one supervisor: runs actors and tasks, restarts them if they fail, and escalates if one
fails too often.
"""

import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import trio

from hermes_actors.actors.mailbox import Inbox, Ref, open_mailbox
from hermes_actors.actors.restart import INFRASTRUCTURE, RestartHistory, RestartPolicy

M = TypeVar("M")


class Actor(Protocol[M]):
    """Reads its inbox until the inbox ends. A factory makes a new actor at each start."""

    async def run(self, inbox: Inbox[M]) -> None:
        """Work until the inbox ends (a stop), then clean up and return."""


async def run_until(stop: trio.Event, *tasks: Callable[[], Awaitable[None]]) -> None:
    """Run the tasks concurrently until the event is set, then cancel those still running."""
    async with trio.open_nursery() as nursery:
        for task in tasks:
            nursery.start_soon(task)
        await stop.wait()
        nursery.cancel_scope.cancel()


class RestartIntensityExceeded(Exception):
    """A child failed more often than its policy allows. Its last error is the cause."""


@dataclass(frozen=True)
class Crash:
    """One failure of a child, for the log and the metrics. `delay_s`: the wait before its restart;
    None if it is not restarted.
    """

    name: str
    error: Exception
    delay_s: float | None


@dataclass
class _Child:
    run: Callable[[], Awaitable[None]]
    """Runs the child once, to its end."""
    ask_to_stop: Callable[[], None]
    messages_waiting: Callable[[], int]
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    ended: trio.Event = field(default_factory=trio.Event)
    is_running: bool = False
    is_stopping: bool = False
    restarts: int = 0


class Supervisor:
    """Runs named actors and tasks in one nursery. Open it with `open_supervisor`."""

    def __init__(
        self, nursery: trio.Nursery, rng: random.Random, on_crash: Callable[[Crash], None]
    ) -> None:
        self._nursery = nursery
        self._rng = rng
        self._on_crash = on_crash
        self._children: dict[str, _Child] = {}
        self.escalated: RestartIntensityExceeded | None = None

    def start(
        self,
        name: str,
        make: Callable[[], Actor[M]],
        *,
        restart: RestartPolicy = INFRASTRUCTURE,
        mailbox_capacity: int = 1_000,
    ) -> Ref[M]:
        """Start an actor. No other child may have its name. `make` is called at each start.

        The Ref remains valid across restarts.
        """
        ref: Ref[M]
        inbox: Inbox[M]
        ref, inbox = open_mailbox(mailbox_capacity)
        child = _Child(lambda: make().run(inbox), inbox.close, lambda: ref.statistics()[0])
        self._start(name, child, restart)
        return ref

    def start_task(
        self,
        name: str,
        run: Callable[[trio.Event], Awaitable[None]],
        *,
        restart: RestartPolicy = INFRASTRUCTURE,
    ) -> None:
        """Start a task, which has no mailbox. No other child may have its name.

        `run` is called at each start. When its event is set, it must clean up and return.
        """
        stop = trio.Event()
        self._start(name, _Child(lambda: run(stop), stop.set, lambda: 0), restart)

    def _start(self, name: str, child: _Child, restart: RestartPolicy) -> None:
        assert name not in self._children, f"{name} runs already"
        self._children[name] = child
        self._nursery.start_soon(self._supervise, name, child, restart, name=name)

    async def stop(self, name: str, *, grace_s: float = 10.0) -> None:
        """Ask the child to stop, and cancel it after `grace_s`.

        Returns when the child has ended; at once if there is no such child.
        """
        child = self._children.get(name)
        if child is None:
            return
        child.is_stopping = True
        child.ask_to_stop()
        if not child.is_running:
            # It is backing off, perhaps for minutes, and has nothing to clean up.
            child.scope.cancel()
        with trio.move_on_after(grace_s):
            await child.ended.wait()
        child.scope.cancel()
        await child.ended.wait()

    def crash(self, name: str) -> None:
        """Make a running child fail, for fault injection. It is then restarted by its policy."""
        child = self._children.get(name)
        if child is not None and child.is_running:
            child.scope.cancel()

    def is_running(self, name: str) -> bool:
        """True while the child runs. False while it backs off or if it does not exist."""
        child = self._children.get(name)
        return child is not None and child.is_running

    def has(self, name: str) -> bool:
        """True if the child exists, also while it backs off or is being stopped."""
        return name in self._children

    def statistics(self) -> dict[str, tuple[bool, int, int]]:
        """For each child: (is running, number of restarts, number of queued messages)."""
        return {
            name: (child.is_running, child.restarts, child.messages_waiting())
            for name, child in self._children.items()
        }

    async def _supervise(self, name: str, child: _Child, policy: RestartPolicy) -> None:
        history = RestartHistory(policy)
        try:
            while True:
                error = await self._run_once(name, child)
                if child.is_stopping or trio.current_effective_deadline() == -math.inf:
                    if error is not None:
                        self._on_crash(Crash(name, error, None))
                    return
                delay_s = history.next_delay_s(
                    trio.current_time(), failed=error is not None, rng=self._rng
                )
                if error is not None:
                    self._on_crash(Crash(name, error, delay_s))
                if delay_s is None:
                    if history.gave_up:
                        self._escalate(name, error)
                    return
                child.restarts += 1
                await self._back_off(child, delay_s)
                if child.is_stopping:
                    return
        finally:
            child.ask_to_stop()
            del self._children[name]
            child.ended.set()

    async def _run_once(self, name: str, child: _Child) -> Exception | None:
        """Run the child once. Returns None after a normal end, else its error."""
        child.scope = trio.CancelScope()
        child.is_running = True
        try:
            with child.scope:
                await child.run()
                # It may have ended before it noticed an injected crash, which is a failure too.
                if not child.scope.cancel_called or child.is_stopping:
                    return None
            # The scope was cancelled: by `crash`, or by `stop` after the grace period.
            return ActorCancelled("cancelled by its supervisor")
        # Every failure of a child ends here: that is the supervisor's purpose.
        except Exception as error:  # noqa: BLE001
            return error
        except BaseExceptionGroup as group:
            # The child was cancelled from outside, and one of its tasks failed while cleaning up.
            # Report the failure here, and raise the cancellation.
            cancelled, rest = group.split(trio.Cancelled)
            if cancelled is None or not isinstance(rest, Exception):
                raise
            self._on_crash(Crash(name, rest, None))
            raise cancelled from None
        finally:
            child.is_running = False

    async def _back_off(self, child: _Child, delay_s: float) -> None:
        child.scope = trio.CancelScope()
        with child.scope:
            await trio.sleep(delay_s)

    def _escalate(self, name: str, error: Exception | None) -> None:
        # open_supervisor raises it, outside its nursery. Raised here, trio would wrap it in an
        # ExceptionGroup, and `except RestartIntensityExceeded` would not catch it.
        self.escalated = RestartIntensityExceeded(f"{name} failed too often: {error!r}")
        self.escalated.__cause__ = error
        self._nursery.cancel_scope.cancel()


class ActorCancelled(Exception):
    """The supervisor cancelled a child: its grace period was over, or a crash was injected."""


@asynccontextmanager
async def open_supervisor(
    rng: random.Random, on_crash: Callable[[Crash], None] = lambda _crash: None
) -> AsyncIterator[Supervisor]:
    """Open a supervisor for the block. Its children are cancelled when the block ends.

    Raises RestartIntensityExceeded if a child has escalated, else the error of the block. Neither
    is wrapped in an exception group.
    """
    error: Exception | None = None
    async with trio.open_nursery() as nursery:
        supervisor = Supervisor(nursery, rng, on_crash)
        try:
            yield supervisor
        # Raised below, outside the nursery, which would wrap it.
        except Exception as raised:  # noqa: BLE001
            error = raised
        finally:
            nursery.cancel_scope.cancel()
    if supervisor.escalated is not None:
        raise supervisor.escalated
    if error is not None:
        raise error
