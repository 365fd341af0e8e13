"""The coordination of a datacentre as one node measures it, in Prometheus' figures."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import trio

from hermes_actors.actors.supervisor import run_until
from hermes_actors.coordination.lease import Lease
from hermes_actors.coordination.room import (
    DEFAULT_LIMITS,
    OwnershipLimits,
    drained,
    full_nodes,
    no_room,
)
from hermes_actors.coordination.state import CoordinationState
from hermes_actors.coordination.tally import PlannerWeights, tally_in_steps
from hermes_actors.coordination.view import Coordination
from hermes_actors.coordination.views import SkewView, member_views, skew_of_members
from hermes_actors.runtime.clock import Clock
from hermes_actors.runtime.turns import in_turns
from hermes_actors.telemetry.metrics import Metrics, meanings

BALANCING = meanings(
    "hermes_balancer",
    is_current=("0 or 1", "Whether the coordination log is read up to its end"),
    position=("offset", "How far the coordination log is read"),
    undecodable_records=("records", "Records of coordination that could not be read"),
    term=("term", "The leader's term"),
    members=("nodes", "Nodes of the datacentre that take part in delivering"),
    leader_lease_age_seconds=("seconds", "Time since the leader was last heard of"),
    expired_leases=("leases", "Leases that ran out: nodes that were lost"),
    moves=("tasks", "Tasks that have moved from one node to another"),
    skew_max_to_mean=("ratio", "Weight of the fullest node, to the mean"),
    skew_max_to_ideal=("ratio", "Weight of the fullest node, to the best that can be"),
    unassigned_subscriptions=("subscriptions", "Subscriptions that no node owns now"),
    unplaced_subscriptions=("subscriptions", "Subscriptions that fit on no node"),
    full_nodes=("nodes", "Nodes that may own no more"),
    waiting_tasks=("tasks", "Tasks that wait for their old owner to let go"),
    draining_nodes=("nodes", "Nodes that are being drained"),
    is_leader=("0 or 1", "Whether this node leads its datacentre"),
    is_member=("0 or 1", "Whether this node takes part in delivering"),
    tasks=("tasks", "Tasks that this node owns"),
    weight=("weight", "Weight of what this node owns"),
    cpu_cores=("cores", "Processor time that this node uses"),
    lease_left_seconds=("seconds", "Time for which this node may still act"),
    fence_closed_seconds=("seconds", "Time in which this node was not allowed to act"),
)

SUM_INTERVAL_S = 10.0
LOOK_INTERVAL_S = 0.25
_NOTHING = SkewView(0, 0.0, 0.0, 0.0, "", 1.0, 1.0)


def _no_weights(_state: CoordinationState) -> PlannerWeights:
    return PlannerWeights()


class Meter:
    """Keeps the figures that are too dear to take at each scrape; they are 10 s old at most.

    `subscriptions` are those that are to be owned, `draining` the nodes that are to own nothing,
    `lease` is that of this node's present life, None for a node that only reads. How long it was
    closed is looked at four times a second, and counts from when it was first open.
    """

    def __init__(
        self,
        coordination: Coordination,
        *,
        clock: Clock,
        subscriptions: Callable[[], Mapping[str, Any]] = dict,
        draining: Callable[[], Collection[str]] = tuple,
        weights: Callable[[CoordinationState], PlannerWeights] = _no_weights,
        lease: Callable[[], Lease | None] = lambda: None,
        limits: OwnershipLimits = DEFAULT_LIMITS,
    ) -> None:
        self.skew = _NOTHING
        self.unassigned = 0
        """Subscriptions that nobody owns."""
        self.unplaced = 0
        """Those of the unassigned that nobody is to own, because no node has room."""
        self.waiting = 0
        """Parts of subscriptions whose owner to be waits for another to release them."""
        self.weight = 0.0
        """That of this node's tasks."""
        self.closed_s = 0.0
        self._coordination = coordination
        self._clock = clock
        self._subscriptions = subscriptions
        self._draining = draining
        self._weights = weights
        self._lease = lease
        self._limits = limits
        self._looked_s: float | None = None

    async def run(self, stop: trio.Event) -> None:
        """Measure until asked to stop."""
        await run_until(stop, self._sum_up, self._look)

    async def _sum_up(self) -> None:
        while True:
            state = self._coordination.state
            draining = drained(state, self._draining())
            tally = await in_turns(tally_in_steps(state, self._weights(state)))
            self.skew = skew_of_members(member_views(state, tally, draining), tally.heaviest)
            self.waiting = tally.waiting
            self.weight = tally.of(self._boot).weight
            unassigned = unplaced = 0
            is_full = no_room(state, draining, self._limits) is not None
            for count, name in enumerate(list(self._subscriptions())):
                unassigned += not state.grants(name)
                unplaced += is_full and not state.targets_of(name)
                if count % 1_000 == 0:
                    await trio.lowlevel.checkpoint()
            self.unassigned, self.unplaced = unassigned, unplaced
            await trio.sleep(SUM_INTERVAL_S)

    async def _look(self) -> None:
        while True:
            now_s, lease = self._clock.boottime_s(), self._lease()
            is_open = lease is not None and lease.is_open()
            if self._looked_s is not None and not is_open:
                self.closed_s += now_s - self._looked_s
            if is_open or self._looked_s is not None:
                self._looked_s = now_s
            await trio.sleep(LOOK_INTERVAL_S)

    def metrics(self) -> Metrics:
        """The figures, read when they are scraped."""
        coordination = self._coordination
        metrics = Metrics("hermes_balancer", meanings=BALANCING)
        metrics.gauge("is_current", lambda: float(coordination.is_current))
        metrics.gauge("position", lambda: coordination.state.position)
        metrics.total("undecodable_records", lambda: coordination.undecodable)
        metrics.gauge("term", lambda: coordination.state.term)
        metrics.gauge("members", lambda: len(coordination.state.members))
        metrics.gauge("leader_lease_age_seconds", self._leader_age_s)
        metrics.total("expired_leases", lambda: coordination.state.expired)
        metrics.total("moves", lambda: coordination.state.moved)
        metrics.gauge("skew_max_to_mean", lambda: self.skew.max_to_mean)
        metrics.gauge("skew_max_to_ideal", lambda: self.skew.max_to_ideal)
        metrics.gauge("unassigned_subscriptions", lambda: self.unassigned)
        metrics.gauge("unplaced_subscriptions", lambda: self.unplaced)
        metrics.gauge("full_nodes", self._full_nodes)
        metrics.gauge("waiting_tasks", lambda: self.waiting)
        metrics.gauge("draining_nodes", lambda: len(self._draining()))
        return metrics

    def own_metrics(self, metrics: Metrics) -> None:
        """Add the figures that only a node that takes part has."""
        metrics.gauge(
            "is_leader", lambda: float(self._boot == self._coordination.state.leader != "")
        )
        metrics.gauge("is_member", lambda: float(self._boot in self._coordination.state.members))
        metrics.gauge("tasks", lambda: len(self._coordination.state.grants_of(self._boot)))
        metrics.gauge("weight", lambda: self.weight)
        metrics.gauge("cpu_cores", self._own_cpu)
        metrics.gauge("lease_left_seconds", self._lease_left_s)
        metrics.total("fence_closed_seconds", lambda: self.closed_s)

    @property
    def _boot(self) -> str:
        lease = self._lease()
        return "" if lease is None else lease.boot

    def _own_cpu(self) -> float:
        """Return the CPU that the node's process uses, in cores, smoothed; 0 until it was told."""
        member = self._coordination.state.members.get(self._boot)
        return 0.0 if member is None or member.load is None else member.load.cpu

    def _lease_left_s(self) -> float:
        lease = self._lease()
        return 0.0 if lease is None else lease.left_s

    def _full_nodes(self) -> int:
        state = self._coordination.state
        return len(full_nodes(state, drained(state, self._draining()), self._limits))

    def _leader_age_s(self) -> float:
        """Seconds of log time since the leader was last heard of; NaN, as Prometheus has it, while
        there is no leader.
        """
        state = self._coordination.state
        leader = state.members.get(state.leader)
        return float("nan") if leader is None else (state.clock_ms - leader.heard_log_ms) / 1_000
