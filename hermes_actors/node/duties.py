"""The tasks for the whole datacentre: copying the other datacentres' changes, and keeping the log's
topics as the metadata says. The balancer's leader does them.

All are idempotent, so several nodes may do them at once. In a datacentre without consumers nodes,
the management nodes do them.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

import trio

from hermes_actors.actors.supervisor import run_until
from hermes_actors.log.base import Log
from hermes_actors.metadata.reconciler import TopicReconciler
from hermes_actors.metadata.registry import Metadata
from hermes_actors.metadata.replication import Replicator
from hermes_actors.node.environment import NodeEnvironment
from hermes_actors.node.running import Node

_POLL_S = 0.5
_SILENT_S = 10.0
"""Members that wrote nothing for this long have all died: log time does not pass without them."""


class _Duty(Protocol):
    """A task for the whole datacentre; `trouble` says why it makes no progress."""

    trouble: str

    async def run(self, stop: trio.Event) -> None:
        """Work until asked to stop."""


def start_duties(node: Node, environment: NodeEnvironment, others: Mapping[str, Metadata]) -> None:
    """Do the duties whenever this node is responsible. `others` is the other datacentres'
    metadata.
    """
    config, own = node.config, node.metadata
    is_named = config.metadata.replicator == config.node
    if not (is_named or "consumers" in config.roles or "management" in config.roles):
        return
    responsibility = _Responsibility(node)

    def is_responsible() -> bool:
        return is_named or responsibility.is_held()

    async def work(name: str, duty: _Duty) -> None:
        node.duties[name] = lambda: duty.trouble
        ended = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(duty.run, ended)
            await _poll(lambda: not is_responsible())
            ended.set()
        node.duties[name] = str

    def start(name: str, make: Callable[[], _Duty]) -> None:
        async def take_turns() -> None:
            while True:
                await _poll(is_responsible)
                await work(name, make())

        node.duties[name] = str
        node.control.start_task(name, lambda stop: run_until(stop, take_turns))

    def replicator(source: Log) -> Callable[[], Replicator]:
        return lambda: Replicator(
            source,
            own,
            clock=environment.clock,
            rng=environment.split_rng(),
            digest_interval_s=config.metadata.digest_interval_ms / 1_000,
        )

    for dc, log in environment.remote_logs.items():
        start(f"replicator {dc}", replicator(log))
    start(
        "reconciler",
        lambda: TopicReconciler(
            own, others, config, clock=environment.clock, rng=environment.split_rng()
        ),
    )


class _Responsibility:
    """Whether the duties are this node's, by the coordination log; unchanged while that cannot be
    read.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._is_held = False
        self._position = -1
        self._heard_s = 0.0

    def is_held(self) -> bool:
        """True while this node leads, or is management and no node can lead."""
        node, coordination = self._node, self._node.coordination
        now_s = node.environment.clock.monotonic_s()
        if coordination is None or not coordination.is_current:
            self._heard_s = now_s
            return self._is_held
        state = coordination.state
        if state.position != self._position:
            self._position, self._heard_s = state.position, now_s
        if state.members and now_s - self._heard_s < _SILENT_S:
            boot = "" if node.presence is None else node.presence.boot
            self._is_held = state.leader == boot != ""
        else:
            self._is_held = "management" in node.config.roles
        return self._is_held


async def _poll(condition: Callable[[], bool]) -> None:
    await trio.lowlevel.checkpoint()
    # Silence changes it too, without any event.
    while not condition():  # noqa: ASYNC110
        await trio.sleep(_POLL_S)
