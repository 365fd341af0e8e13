"""The balancer's state for management and for Prometheus."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from hermes_actors.balancer.planning import WorkloadPlanner
from hermes_actors.balancer.workloads import workload_of
from hermes_actors.coordination.commands import Assignment
from hermes_actors.coordination.meter import Meter
from hermes_actors.coordination.reader import CoordinationReader
from hermes_actors.coordination.room import OwnershipLimits
from hermes_actors.coordination.view import Coordination
from hermes_actors.errors import Unavailable
from hermes_actors.log.base import Log
from hermes_actors.node.coordinating import rate_of, settings_of
from hermes_actors.node.environment import NodeEnvironment
from hermes_actors.node.running import Node
from hermes_actors.runtime.turns import in_turns


def follow_coordinations(node: Node, environment: NodeEnvironment) -> Mapping[str, Coordination]:
    """Follow the other datacentres' coordination logs, too. Returns all of them by datacentre,
    including the own one.
    """
    assert node.coordination is not None, "management follows its datacentre's coordination"
    followed = {node.config.dc: node.coordination}

    def follow(log: Log) -> None:
        coordination = followed[log.dc] = Coordination(log)
        rng = environment.split_rng()
        node.control.start_task(
            f"coordination {log.dc}",
            lambda stop: CoordinationReader(
                coordination, clock=environment.clock, rng=rng, makes_topic=False
            ).run(stop),
        )

    for log in environment.remote_logs.values():
        follow(log)
    return followed


async def propose_plan(node: Node) -> tuple[Assignment, ...]:
    """Return the changes that a new leader would make in the node's datacentre, without making
    them. Raises Unavailable if planning is not possible yet.
    """
    coordination, metadata = node.coordination, node.metadata
    assert coordination is not None, "nothing is planned without it"
    workload = workload_of(metadata, coordination.state, {})
    if workload is None:
        raise Unavailable("The metadata is not read yet, so nothing can be planned; try again")
    settings = settings_of(node.config.consumers.balancer)
    planner = WorkloadPlanner(settings, lambda name: rate_of(metadata.catalog, name))
    return await in_turns(planner.plan(coordination.state, workload))


@asynccontextmanager
async def open_meter(node: Node) -> AsyncIterator[None]:
    """Measure the datacentre's coordination during the block."""
    coordination, catalog = node.coordination, node.metadata.catalog
    assert coordination is not None, "there is nothing to measure without it"
    balancer = node.config.consumers.balancer
    meter = Meter(
        coordination,
        subscriptions=lambda: catalog.subscriptions,
        draining=lambda: catalog.draining_in(node.config.dc),
        limits=OwnershipLimits(balancer.tasks_per_node_max, balancer.consumers_per_subscription),
    )
    metrics = meter.metrics()
    if "consumers" in node.config.roles:
        meter.own_metrics(metrics, lambda: "" if node.presence is None else node.presence.boot)
    node.metrics.append(metrics)
    # The same object after a failure, so that it continues counting.
    node.control.start_task("balancer meter", meter.run)
    yield
    await node.control.stop("balancer meter")
