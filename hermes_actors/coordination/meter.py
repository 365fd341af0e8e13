"""The balancer's metrics of a datacentre, as one node measures them."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import trio

from hermes_actors.actors.supervisor import run_until
from hermes_actors.coordination.room import DEFAULT_LIMITS, OwnershipLimits, drained, no_room
from hermes_actors.coordination.tally import tally_in_steps
from hermes_actors.coordination.view import Coordination
from hermes_actors.coordination.views import SkewView, member_views, skew_of_members
from hermes_actors.coordination.weights import weights_of
from hermes_actors.runtime.turns import each_in_turns, in_turns
from hermes_actors.telemetry.metrics import Metrics, meanings

BALANCING = meanings(
    "hermes_balancer",
    is_current=("0 or 1", "Whether the coordination log is read up to its end"),
    term=("term", "The leader's term"),
    members=("nodes", "Nodes of the datacentre that take part in delivering"),
    leader_lease_age_seconds=("seconds", "Time since the leader was last heard of"),
    expired_leases=("leases", "Leases that ran out: nodes that were lost"),
    moves=("tasks", "Tasks that have moved from one node to another"),
    skew_max_to_mean=("ratio", "Weight of the fullest node, divided by the mean"),
    skew_max_to_ideal=("ratio", "Weight of the fullest node, divided by the least possible"),
    unassigned_subscriptions=("subscriptions", "Subscriptions that no node owns now"),
    unplaced_subscriptions=("subscriptions", "Subscriptions that fit on no node"),
    draining_nodes=("nodes", "Nodes that are being drained"),
    is_leader=("0 or 1", "Whether this node leads its datacentre"),
    tasks=("tasks", "Tasks that this node owns"),
)

SUM_INTERVAL_S = 10.0


class Meter:
    """Computes metrics that are too expensive for each scrape; they are at most 10 s old.

    `subscriptions` returns those that need owners, `draining` the nodes that must own nothing.
    """

    def __init__(
        self,
        coordination: Coordination,
        *,
        subscriptions: Callable[[], Mapping[str, Any]] = dict,
        draining: Callable[[], Collection[str]] = tuple,
        limits: OwnershipLimits = DEFAULT_LIMITS,
    ) -> None:
        self.skew = SkewView()
        self.unassigned = 0
        """Subscriptions without an owner."""
        self.unplaced = 0
        """Those without a planned owner either, because no node has room."""
        self._coordination = coordination
        self._subscriptions = subscriptions
        self._draining = draining
        self._limits = limits

    async def run(self, stop: trio.Event) -> None:
        """Update the figures until asked to stop."""
        await run_until(stop, self._sum_up)

    async def _sum_up(self) -> None:
        while True:
            state = self._coordination.state
            draining = drained(state, self._draining())
            tally = await in_turns(tally_in_steps(state, weights_of(state)))
            self.skew = skew_of_members(member_views(state, tally, draining), tally.heaviest)
            unassigned = unplaced = 0
            is_full = no_room(state, draining, self._limits) is not None
            async for name in each_in_turns(list(self._subscriptions())):
                unassigned += not state.grants(name)
                unplaced += is_full and not state.targets_of(name)
            self.unassigned, self.unplaced = unassigned, unplaced
            await trio.sleep(SUM_INTERVAL_S)

    def metrics(self) -> Metrics:
        """The metrics, computed when they are scraped."""
        coordination = self._coordination
        metrics = Metrics("hermes_balancer", meanings=BALANCING)
        metrics.gauge("is_current", lambda: float(coordination.is_current))
        metrics.gauge("term", lambda: coordination.state.term)
        metrics.gauge("members", lambda: len(coordination.state.members))
        metrics.gauge("leader_lease_age_seconds", self._leader_age_s)
        metrics.total("expired_leases", lambda: coordination.state.expired)
        metrics.total("moves", lambda: coordination.state.moved)
        metrics.gauge("skew_max_to_mean", lambda: self.skew.max_to_mean)
        metrics.gauge("skew_max_to_ideal", lambda: self.skew.max_to_ideal)
        metrics.gauge("unassigned_subscriptions", lambda: self.unassigned)
        metrics.gauge("unplaced_subscriptions", lambda: self.unplaced)
        metrics.gauge("draining_nodes", lambda: len(self._draining()))
        return metrics

    def own_metrics(self, metrics: Metrics, boot: Callable[[], str]) -> None:
        """Add the metrics of a node that is a member; `boot` returns the id of its present life."""
        coordination = self._coordination
        metrics.gauge("is_leader", lambda: float(boot() == coordination.state.leader != ""))
        metrics.gauge("tasks", lambda: len(coordination.state.grants_of(boot())))

    def _leader_age_s(self) -> float:
        """Log time in seconds since the leader's last heartbeat; NaN while there is no leader."""
        state = self._coordination.state
        leader = state.members.get(state.leader)
        return float("nan") if leader is None else (state.clock_ms - leader.heard_log_ms) / 1_000
