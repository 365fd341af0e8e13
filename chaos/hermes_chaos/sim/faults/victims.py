"""The world as the nemesis sees it: what it can break, and how to mend it."""

from collections.abc import Sequence
from typing import Protocol

from hermes_chaos.sim.environment.coordination_way import CoordinationWay
from hermes_chaos.sim.environment.disk import SimulatedDisk
from hermes_chaos.sim.environment.subscribers import Endpoint
from hermes_chaos.sim.environment.watched_log import WatchedLog


class Victims(Protocol):
    """The world as the nemesis sees it."""

    @property
    def logs(self) -> Sequence[WatchedLog]:
        """Each datacentre's log."""

    def way(self, node: str) -> CoordinationWay:
        """The node's connection to the coordination log."""

    def pause(self, node: str) -> bool:
        """Pause the node's process as SIGSTOP does. False if it is down or already paused."""

    def go_on(self, node: str) -> None:
        """Resume a paused node as SIGCONT does."""

    async def set_ready(self, dc: str, is_ready: bool) -> bool:
        """Set in all datacentres whether this one may be used for fallback. False if
        that failed.
        """

    def spooled(self, node: str) -> int:
        """The number of messages in the node's spool; 0 while it is down."""

    def disk(self, node: str) -> SimulatedDisk:
        """The disk of the node's spool; it outlives the node."""

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        """All subscribers."""

    @property
    def busy_endpoints(self) -> Sequence[Endpoint]:
        """Subscribers of topics that get bursts of messages."""

    @property
    def node_names(self) -> Sequence[str]:
        """All nodes, running or not."""

    def kill(self, node: str, down_s: float, commits_after_s: float | None = None) -> bool:
        """Kill a node; its next life starts after `down_s`. False if it is already down.

        With `commits_after_s`, its last commits reach the log a second time, that much later.
        """

    def stop(self, node: str, down_s: float) -> bool:
        """Stop a node in good order; its next life starts `down_s` later. False if it is already
        down.
        """

    def crash_actor(self, node: str, where: float) -> str | None:
        """Crash one running actor of the node. Return its name, or None if there is none."""

    def skew(self, node: str, skew_ms: int) -> None:
        """Set the error of the node's wall clock."""
