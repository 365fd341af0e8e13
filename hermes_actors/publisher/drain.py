"""Takes a node out of service without losing a request: announce, refuse new publishes, wait for
the open ones.
"""

from collections.abc import Callable, Sequence
from enum import Enum

import trio

from hermes_actors.status.dependencies import Dependency, ProbeAnswer, probed, reasons

_POLL_S = 0.02


class Phase(Enum):
    """The phases of a frontend between start and end, in this order."""

    STARTING = 1
    SERVING = 2
    ANNOUNCED = 3  # health says SHUTDOWN so that load balancers notice; publishing continues
    CLOSED = 4  # new publishes are refused, open ones may end
    DRAINED = 5


class Drain:
    """The phase of one node and its open publishes.

    `in_flight` is counted by the code that begins and ends a publish. `dependencies` returns what
    the node needs while it serves.

    The flags are plain attributes because each request reads them. `is_leaving` is True from the
    announcement on: HTTP/1.1 answers then close their connections, so that publishers move on.
    """

    def __init__(
        self,
        *,
        initial_wait_ms: int,
        drain_ms: int,
        dependencies: Callable[[], Sequence[Dependency]] = tuple,
    ) -> None:
        self._initial_wait_s = initial_wait_ms / 1_000
        self._drain_s = drain_ms / 1_000
        self._dependencies = dependencies
        self.phase = Phase.STARTING
        self.in_flight = 0
        self.is_refusing = True
        self.is_leaving = False
        self._announced_s = 0.0
        self.on_closed: list[Callable[[], None]] = []
        """Called when new publishes begin to be refused, to end long requests."""

    @property
    def is_up(self) -> bool:
        """True while the node serves and does not plan to end; reported as health."""
        return self.phase is Phase.SERVING

    @property
    def is_ready(self) -> bool:
        """True while traffic may be sent to this node; reported as readiness."""
        return not reasons(self.dependencies())

    def dependencies(self) -> list[Dependency]:
        """The node's dependencies, and last whether the node itself is starting or stopping."""
        trouble = ""
        if not self.is_up:
            is_starting = self.phase is Phase.STARTING
            trouble = "it is starting" if is_starting else "it is shutting down"
        return [*self._dependencies(), Dependency("process", trouble, is_needed=True)]

    def probe(self, path: str) -> ProbeAnswer:
        """The answer to the probe at this path (one of PROBES)."""
        is_started = self.phase is not Phase.STARTING
        return probed(path, self.dependencies(), is_started=is_started)

    def open(self) -> None:
        """Start serving; start-up has finished."""
        assert self.phase is Phase.STARTING, "opened twice"
        self.phase = Phase.SERVING
        self.is_refusing = False

    def announce(self) -> None:
        """Report SHUTDOWN as health from now on. May be called twice."""
        if self.phase in (Phase.STARTING, Phase.SERVING):
            self._announced_s = trio.current_time()
            self.phase = Phase.ANNOUNCED
            self.is_leaving = True

    async def run(self) -> bool:
        """Announce, wait, refuse new publishes, and wait until none is open or the time is over.
        True if every open request has been answered.
        """
        was_serving = not self.is_refusing
        self.announce()
        if was_serving:
            await trio.sleep_until(self._announced_s + self._initial_wait_s)
        self.phase = Phase.CLOSED
        self.is_refusing = True
        for call in self.on_closed:
            call()
        with trio.move_on_after(self._drain_s):
            # A counter costs each request less than an event to wait for.
            while self.in_flight:  # noqa: ASYNC110
                await trio.sleep(_POLL_S)
        self.phase = Phase.DRAINED
        return self.in_flight == 0
