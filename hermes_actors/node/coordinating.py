"""The coordinating part of a node. It follows its datacentre's coordination log. A consuming node
also takes part: it sends heartbeats, leads if no other node does, and owns what it is granted.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio
from msgspec import Struct

from hermes_actors import __version__
from hermes_actors.actors.restart import TENANT
from hermes_actors.actors.supervisor import run_until
from hermes_actors.balancer.leader import Leader
from hermes_actors.balancer.membership import Membership, NodeLoads
from hermes_actors.balancer.planning import WorkloadPlanner
from hermes_actors.balancer.presence import Presence
from hermes_actors.balancer.releases import Releases
from hermes_actors.balancer.workload.problem import PlannerSettings
from hermes_actors.balancer.workloads import Workloads
from hermes_actors.config import BalancerConfig
from hermes_actors.coordination.reader import CoordinationReader
from hermes_actors.coordination.view import Coordination
from hermes_actors.metadata.catalog import Catalog
from hermes_actors.model.subscription import BatchPolicy, DeliveryType
from hermes_actors.node.environment import NodeEnvironment
from hermes_actors.node.running import Node, log_crash


class CoordinationPart(Struct, frozen=True):
    """A consuming node's part in its datacentre's coordination."""

    coordination: Coordination
    presence: Presence
    releases: Releases


@asynccontextmanager
async def open_coordination(node: Node, environment: NodeEnvironment) -> AsyncIterator[None]:
    """Follow the coordination log during the block."""
    coordination = node.coordination = Coordination(environment.log)
    rng = environment.split_rng()

    async def follow(stop: trio.Event) -> None:
        async def follow_own() -> None:
            # The reader creates a topic, so first the log must be known to be this datacentre's.
            await node.metadata.wait_own()
            await CoordinationReader(coordination, clock=environment.clock, rng=rng).run(stop)

        await run_until(stop, follow_own)

    node.control.start_task("coordination", follow)
    yield
    await node.control.stop("coordination")


@asynccontextmanager
async def open_part(
    node: Node, environment: NodeEnvironment, loads: Callable[[], NodeLoads]
) -> AsyncIterator[CoordinationPart]:
    """Take part during the block; at its end the node leaves, and other nodes take over."""
    config, clock, control = node.config, environment.clock, node.control
    coordination = node.coordination
    assert coordination is not None, "open_coordination comes first"
    presence = node.presence = Presence()
    releases = Releases(coordination, clock)
    balancer = config.consumers.balancer
    planner = WorkloadPlanner(
        settings_of(balancer), lambda name: rate_of(node.metadata.catalog, name)
    )
    # The same objects after a failure: they keep what was looked up, and the pending releases.
    workloads = Workloads(node.metadata, coordination, presence)
    leader = Leader(
        coordination,
        presence,
        planner.plan,
        workloads.current,
        clock=clock,
        rng=environment.split_rng(),
        on_crash=log_crash,
        balance_interval_s=balancer.interval_ms / 1_000,
    )
    workloads.on_change = leader.plan_soon
    # It backs off without end: a leader that fails must not end one node after another.
    control.start_task("leader", leader.run, restart=TENANT)
    control.start_task("workloads", workloads.run)
    control.start_task("releases", releases.run)
    control.start_task(
        "membership",
        lambda stop: Membership(
            coordination,
            presence,
            node=config.node,
            cores=environment.cpu.cores,
            version=__version__,
            clock=clock,
            ids=environment.ids,
            loads=loads,
        ).run(stop),
    )
    yield CoordinationPart(coordination, presence, releases)
    for name in ("leader", "workloads", "releases", "membership"):
        await control.stop(name, grace_s=2.0)


def settings_of(config: BalancerConfig) -> PlannerSettings:
    """Translate the configuration into the planner's settings."""
    return PlannerSettings(
        owners_default=config.consumers_per_subscription,
        tasks_max=config.tasks_per_node_max,
        stable_s=config.stabilization_window_ms / 1_000,
    )


def rate_of(catalog: Catalog, name: str) -> float:
    """A subscription's maximum rate in messages a second; 0 if it has none."""
    live = catalog.subscriptions.get(name)
    if live is None:
        return 0.0
    policy = live.subscription.subscription_policy
    if live.subscription.delivery_type is DeliveryType.PULL:
        return 0.0
    if isinstance(policy, BatchPolicy):
        return float(policy.message_rate or 0)
    return float(policy.rate)
