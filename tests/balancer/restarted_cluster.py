"""A datacentre without processes: the fold of its coordination log, its planner, and nodes that
follow the state at once. Counts how often each partition changes its node.
"""

import random

from hermes_actors.balancer.leader import in_parts
from hermes_actors.balancer.planning import Ownable, Workload, WorkloadPlanner
from hermes_actors.balancer.workload.problem import PlannerSettings
from hermes_actors.coordination.commands import (
    Heartbeat,
    Join,
    Leave,
    Loads,
    Plan,
    Release,
    TaskLoad,
    TermClaim,
)
from hermes_actors.coordination.state import CoordinationState
from hermes_actors.coordination.values import LEASE_MS
from hermes_actors.runtime.turns import at_once

STEP_MS = 1
PARTS_MAX = 7


class Cluster:
    """`wanted` is by subscription, `rates` has the messages a second of each."""

    def __init__(self, nodes, wanted, rates, settings):
        self.state = CoordinationState()
        self.settings = settings
        self.wanted = wanted
        self.rates = rates
        self.planner = WorkloadPlanner(settings, lambda _name: 0.0)
        self.now_ms = 1_700_000_000_000
        # Of each node, in cores; too little to tell its speed.
        self.cpu = 0.05
        self.boots = {}
        self.lives = 0
        self.nodes = [f"n{number:02}" for number in range(nodes)]
        # By partition: the node that last had it, and how often that changed.
        self.last = {}
        self.moves = {}
        for node in self.nodes:
            self.join(node)
        self.settle()
        self.moves.clear()

    # Events.

    def join(self, node):
        self.lives += 1
        self.boots[node] = boot = f"boot-{self.lives}"
        self.say(Join(boot, node))
        self.say(Heartbeat(boot, 1))

    def leave(self, node):
        self.say(Leave(self.boots.pop(node)))

    def crash(self, node):
        """Crash a node: it is silent until its lease has run out."""
        del self.boots[node]
        for _ in range(LEASE_MS // 500 + 2):
            self.pass_time(500)

    def pass_time(self, ms):
        """Pass time in steps that log time accepts, with heartbeats and loads of all nodes."""
        while ms > 0:
            step_ms = min(ms, 1_000)
            ms -= step_ms
            self.now_ms += step_ms
            for boot in list(self.boots.values()):
                self.say(Heartbeat(boot, 1), 0)
        self.tell_loads()

    def tell_loads(self):
        for boot in list(self.boots.values()):
            tasks = {
                name: TaskLoad(self.rates[name] * len(grant.partitions) / self.wanted[name])
                for name, grant in self.state.grants_of(boot).items()
            }
            self.say(Loads(boot, self.cpu, 1.0, tasks), 0)

    def say(self, said, ms=STEP_MS):
        self.now_ms += ms
        changed = self.state.apply(self.state.position, self.now_ms, said)
        for name in changed.subscriptions:
            self._note(name)

    def plan(self):
        """Run one round of the leader; True if it changed anything."""
        state = self.state
        if not self.boots:
            return False
        if not state.leader:
            self.say(TermClaim(min(self.boots.values()), state.term + 1))
            # Each leader has its own planner.
            self.planner = WorkloadPlanner(self.settings, lambda _name: 0.0)
        workload = Workload({name: Ownable(count) for name, count in self.wanted.items()})
        assignments = at_once(self.planner.plan(state, workload))
        for part in in_parts(assignments, PARTS_MAX, 1_000_000):
            self.say(Plan(state.leader, state.term, state.plan_offset, tuple(part)))
        self._release()
        return bool(assignments)

    def settle(self, rounds=100):
        """Run rounds until nothing changes any more."""
        for _ in range(rounds):
            if not self.plan():
                return
            self.pass_time(1_000)

    def restart_all(self, order, pauses, is_crash=False):
        """Restart nodes one after the other. `pauses`: how many rounds are planned after each is
        back.
        """
        for node, rounds in zip(order, pauses, strict=True):
            (self.crash if is_crash else self.leave)(node)
            self.plan()
            self.pass_time(2_000)
            self.join(node)
            for _ in range(rounds):
                self.plan()
                self.pass_time(1_000)

    def _release(self):
        for boot in list(self.boots.values()):
            for name, grant in list(self.state.grants_of(boot).items()):
                if self.state.must_release(boot, name):
                    self.say(Release(boot, name, grant.epoch))

    # Observations.

    def _note(self, name):
        for grant in self.state.grants(name):
            node = self.state.node_of(grant.boot)
            for partition in grant.partitions:
                lane = (name, partition)
                before = self.last.get(lane, node)
                self.last[lane] = node
                if before != node:
                    self.moves[lane] = self.moves.get(lane, 0) + 1

    @property
    def moves_mean(self):
        return sum(self.moves.values()) / sum(self.wanted.values())

    def unevenness(self):
        """The fullest node's load over the mean, or over the heaviest task if that is more."""
        loads = dict.fromkeys(self.boots.values(), 0.0)
        heaviest = 0.0
        for name, ownership in self.state.subscriptions.items():
            for grant in ownership.grants:
                part = len(grant.partitions) / self.wanted[name]
                weight = max(0.03 * self.rates[name] * part, self.settings.idle_weight)
                loads[grant.boot] += weight
                heaviest = max(heaviest, weight)
        mean = sum(loads.values()) / len(loads)
        return max(loads.values()) / max(mean, heaviest)

    def is_all_owned(self):
        return all(
            sorted(p for grant in self.state.grants(name) for p in grant.partitions)
            == list(range(count))
            for name, count in self.wanted.items()
        )


def cluster_of(nodes, subscriptions, seed, *, owners=2, partitions=(4,), **settings):
    """A cluster at rest, with rates as different as those of topics."""
    rng = random.Random(seed)
    names = [f"g.t$s{number:03}" for number in range(subscriptions)]
    wanted = {name: rng.choice(partitions) for name in names}
    rates = {name: 100 * rng.lognormvariate(0, 1) for name in names}
    cluster = Cluster(nodes, wanted, rates, PlannerSettings(owners_default=owners, **settings))
    cluster.tell_loads()
    # A planner that has not seen the unmeasured cluster.
    cluster.planner = WorkloadPlanner(cluster.settings, lambda _name: 0.0)
    cluster.settle()
    cluster.pass_time(2_000)
    cluster.moves.clear()
    return cluster
