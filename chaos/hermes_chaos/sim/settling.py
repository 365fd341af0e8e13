"""Decides whether a world is settled: nothing owed, no lag, and all nodes agree."""

from collections.abc import Iterable, Mapping, Sequence

from hermes_actors.log.base import EARLIEST, LATEST, Commit
from hermes_actors.log.memory import MemoryLog
from hermes_actors.model.dead_letter import Letter, OpenLetters, dlq_topic, read_entry
from hermes_actors.model.record import StoredRecord
from hermes_chaos.sim.checkers.delivering import AcknowledgedAreDelivered
from hermes_chaos.sim.checkers.owning import Ledgers
from hermes_chaos.sim.node_life import NodeLife
from hermes_chaos.sim.workload.plans import GROUP, SubscriptionPlan


async def find_unsettled(
    nodes: Sequence[NodeLife],
    logs: Mapping[str, MemoryLog],
    delivered: AcknowledgedAreDelivered,
    plans: Sequence[SubscriptionPlan],
) -> str:
    """The first reason why the world is not settled. Empty string if it is."""
    for node in nodes:
        if not node.is_serving:
            return f"{node.name} is not up"
    pending = delivered.pending()
    if pending:
        return f"messages are owed: {pending}"
    views = {node.name: _view(node) for node in nodes}
    if len(set(views.values())) > 1:
        return f"nodes differ in their metadata: {views}"
    # The costliest checks come last; only logs cost more, in virtual time too.
    for node in nodes:
        if spooled := node.spooled:
            return f"{spooled} messages wait in the spool of {node.name}"
    for dc, log in logs.items():
        for plan in plans:
            committed = await log.committed(plan.group, plan.topic)
            for partition, end in (await log.positions(plan.topic, LATEST)).items():
                commit = committed.get(partition, Commit(0))
                if commit.position != end:
                    return (
                        f"{plan.full_name} is at {commit.position} of {end} in "
                        f"{dc}/{plan.topic}/{partition}"
                    )
    return ""


def are_members(nodes: Iterable[str], ledgers: Ledgers) -> bool:
    """True if each of these nodes takes part in its datacentre's coordination."""
    members = {name for each in ledgers.of.values() for name in each.members.values()}
    return members.issuperset(nodes)


async def open_letters(logs: Iterable[MemoryLog]) -> dict[str, set[str]]:
    """By subscription, the messages with open dead letters in any of the logs."""
    found: dict[str, set[str]] = {}
    topic = dlq_topic(GROUP)
    for log in logs:
        if await log.topics.describe(topic) is None:
            continue
        for partition, start in (await log.positions(topic, EARLIEST)).items():
            end = (await log.positions(topic, LATEST))[partition]
            # Ids distinguish the letters of one subscription.
            known: dict[bytes | None, OpenLetters] = {}
            for record in reversed(await _records(log, topic, partition, start, end)):
                entry = read_entry(record)
                is_open = known.setdefault(record.key, OpenLetters()).take(entry)
                if is_open and isinstance(entry, Letter):
                    found.setdefault(entry.subscription, set()).add(entry.message_id)
    return found


async def _records(
    log: MemoryLog, topic: str, partition: int, start: int, end: int
) -> list[StoredRecord]:
    records: list[StoredRecord] = []
    if start < end:
        async with log.reader(topic, {partition: start}) as reader:
            while not records or records[-1].offset < end - 1:
                records += await reader.next_batch(1_000, 10_000_000)
    return records


def _view(node: NodeLife) -> tuple[tuple[str, int], ...]:
    """The topics and subscriptions that a node knows: names and versions."""
    catalog = node.catalog
    live = {
        **{name: each.stamp for name, each in catalog.topics.items()},
        **{name: each.stamp for name, each in catalog.subscriptions.items()},
    }
    return tuple(sorted(live.items()))
