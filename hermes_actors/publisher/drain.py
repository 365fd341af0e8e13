"""Takes a node out of service without losing a request: told first, then closed, then empty."""

from collections.abc import Callable, Sequence
from enum import Enum

import trio

from hermes_actors.status.dependencies import Dependency, ProbeAnswer, probed, reasons

_POLL_S = 0.02


class Phase(Enum):
    """Where a frontend stands between its start and its end, in this order."""

    STARTING = 1
    SERVING = 2
    ANNOUNCED = 3  # health says SHUTDOWN so that load balancers notice; publishing goes on
    CLOSED = 4  # new publishes are refused, those under way end
    DRAINED = 5


class Drain:
    """The phase of one node, and how many of its publishes are under way: `in_flight`, which those
    count who begin and end one. `dependencies` are those that it works with while it serves.

    The flags are plain attributes because each request reads them. `is_leaving`, from the
    announcement on: answers over HTTP/1.1 close their connections, so that publishers move on.
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
        self.on_closed: list[Callable[[], None]] = []
        """Called when new publishes begin to be refused: what goes on for long must end."""

    @property
    def is_up(self) -> bool:
        """True while the node serves and is not about to end; health answers with it."""
        return self.phase is Phase.SERVING

    @property
    def is_ready(self) -> bool:
        """True while traffic may be sent to this node; readiness answers with it."""
        return not reasons(self.dependencies())

    def dependencies(self) -> list[Dependency]:
        """The node's dependencies, and last its own process: whether that takes part now."""
        trouble = ""
        if not self.is_up:
            is_starting = self.phase is Phase.STARTING
            trouble = "it is starting" if is_starting else "it is shutting down"
        return [*self._dependencies(), Dependency("process", trouble, is_needed=True)]

    def probe(self, path: str) -> ProbeAnswer:
        """The answer to the probe at this path of PROBES."""
        is_started = self.phase is not Phase.STARTING
        return probed(path, self.dependencies(), is_started=is_started)

    def open(self) -> None:
        """Serve from now on: start-up has finished."""
        assert self.phase is Phase.STARTING, "opened twice"
        self.phase = Phase.SERVING
        self.is_refusing = False

    def announce(self) -> None:
        """Health says SHUTDOWN from now on; safe to call in a signal's turn, and twice."""
        if self.phase in (Phase.STARTING, Phase.SERVING):
            self.phase = Phase.ANNOUNCED
            self.is_leaving = True

    async def run(self) -> bool:
        """Announce, wait, refuse, and return when nothing is under way or the time is over.

        True when every request that was under way has been answered.
        """
        was_serving = not self.is_refusing
        self.announce()
        if was_serving:
            await trio.sleep(self._initial_wait_s)
        self.phase = Phase.CLOSED
        self.is_refusing = True
        for call in self.on_closed:
            call()
        with trio.move_on_after(self._drain_s):
            # A counter costs each request less than an event that somebody can wait for.
            while self.in_flight:  # noqa: ASYNC110
                await trio.sleep(_POLL_S)
        self.phase = Phase.DRAINED
        return self.in_flight == 0
