"""Whether a world has come to rest: nothing owed, no lag, and all nodes of one mind."""

from collections.abc import Mapping, Sequence

from hermes_actors.log.base import Commit
from hermes_actors.log.memory import MemoryLog
from hermes_chaos.sim.checkers_delivering import AcknowledgedAreDelivered
from hermes_chaos.sim.node_life import NodeLife
from hermes_chaos.sim.workload import ALL_SUBSCRIPTIONS


async def find_unsettled(
    nodes: Sequence[NodeLife], logs: Mapping[str, MemoryLog], delivered: AcknowledgedAreDelivered
) -> str:
    """The first thing that is not as it should be at the end, "" when all is."""
    for node in nodes:
        if not node.is_serving:
            return f"{node.name} is not up"
    for node in nodes:
        if node.spooled:
            return f"{node.spooled} messages wait in the spool of {node.name}"
    pending = delivered.pending()
    if pending:
        return f"messages are owed: {pending}"
    views = {node.name: _view(node) for node in nodes}
    if len(set(views.values())) > 1:
        return f"nodes differ in their metadata: {views}"
    for dc, log in logs.items():
        for plan in ALL_SUBSCRIPTIONS:
            committed = await log.committed(plan.group, plan.topic)
            for partition, end in (await log.end_positions(plan.topic)).items():
                commit = committed.get(partition, Commit(0))
                if commit.position != end:
                    return (
                        f"{plan.full_name} is at {commit.position} of {end} in "
                        f"{dc}/{plan.topic}/{partition}"
                    )
    return ""


def _view(node: NodeLife) -> tuple[tuple[str, int], ...]:
    """What a node believes of topics and subscriptions: names and versions."""
    catalog = node.catalog
    live = {
        **{name: each.stamp for name, each in catalog.topics.items()},
        **{name: each.stamp for name, each in catalog.subscriptions.items()},
    }
    return tuple(sorted(live.items()))
