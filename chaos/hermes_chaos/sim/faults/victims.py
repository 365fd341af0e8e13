"""The world as the nemesis sees it: what it can break, and how it is mended."""

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
        """Each DC's log."""

    def way(self, node: str) -> CoordinationWay:
        """The node's way to the coordination log."""

    def pause(self, node: str) -> bool:
        """Stop the node's process as SIGSTOP does. False: it is down or stopped already."""

    def go_on(self, node: str) -> None:
        """As SIGCONT; nothing for one that is not stopped."""

    async def set_ready(self, dc: str, is_ready: bool) -> bool:
        """Tell all datacentres whether this one may be fallen back to. False: it failed."""

    def spooled(self, node: str) -> int:
        """How many messages wait in the spool of the node; 0 while it is down."""

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
        """All nodes, up or not."""

    def kill(self, node: str, down_s: float, commits_after_s: float | None = None) -> bool:
        """Kill a node; another of that name starts after `down_s`. False: it is down already.

        With `commits_after_s` its last commits reach the log once more, so much later.
        """

    def stop(self, node: str, down_s: float) -> bool:
        """Stop a node in good order; another starts `down_s` later. False: it is down already."""

    def crash_actor(self, node: str, where: float) -> str | None:
        """Crash one running actor of the node; its name, or None when there is none."""

    def skew(self, node: str, skew_ms: int) -> None:
        """Set how far the node's wall clock is off."""
