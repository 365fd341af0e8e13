"""Loses a delivering node under load: who delivers what before and after, and how long others
waited.
"""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
import trio
from rich.console import Console
from rich.table import Table

from examples.flights.deliveries import DeliveryFile
from examples.flights.publishing import Datacentre, publish_all
from hermes_actors.cli.publishing.publisher import PublishResult, Unreachable
from hermes_actors.runtime import guest
from hermes_actors.runtime.clock import SystemClock

AFTER_S = 0.3
TAKEN_OVER_WITHIN_S = 30.0
_LOOK_S = 0.05

Work = dict[str, dict[str, tuple[int, ...]]]
"""By node of a datacentre, the partitions of each subscription that it delivers."""


@dataclass(frozen=True)
class Victim:
    """A consuming node of the first datacentre; `end` removes it without warning."""

    node: str
    end: Callable[[], None]
    how: str


@dataclass
class Loss:
    """What was observed. `seconds`: until others had taken over all its work; None if they did not
    in the observed time.
    """

    victim: Victim
    before: Work
    after: Work
    seconds: float | None
    outcomes: list[PublishResult]


def victim_of(ready: dict[str, Any], process: int) -> Victim | None:
    """A node of the datacentres in a ready line; None if it has fewer than two.

    Nodes with their own processes are killed. In `hermes dev`, which is one process, SIGUSR1 drops
    the last node.
    """
    nodes = ready["dcs"][0].get("consumers", [])
    if len(nodes) < 2:
        return None
    last = nodes[-1]
    if "pid" in last:
        kill = partial(os.kill, last["pid"], signal.SIGKILL)
        return Victim(last["node"], kill, "killed with SIGKILL")
    drop = partial(os.kill, process, signal.SIGUSR1)
    return Victim(last["node"], drop, "dropped from its process")


def lose_while_publishing(
    flights: list[tuple[int, bytes]],
    dcs: list[Datacentre],
    topic: str,
    console: Console,
    rate_per_s: float,
    victim: Victim,
) -> Loss:
    """Publish the flights, remove the node in the middle, and wait until others deliver its part.
    Raises Unreachable, also if the first datacentre's management is.
    """
    return guest.run(_lose, flights, dcs, topic, console, rate_per_s, victim)


async def _lose(
    flights: list[tuple[int, bytes]],
    dcs: list[Datacentre],
    topic: str,
    console: Console,
    rate_per_s: float,
    victim: Victim,
) -> Loss:
    clock, dc = SystemClock(), dcs[0]
    async with httpx.AsyncClient(timeout=10.0, trust_env=False) as client:
        loss = Loss(victim, await work_of(client, dc), {}, None, [])

        unreachable: list[Unreachable] = []

        async def publish() -> None:
            try:
                loss.outcomes, _ = await publish_all(flights, dcs, topic, console, rate_per_s)
            except Unreachable as error:
                unreachable.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(publish)
            await trio.sleep(AFTER_S)
            victim.end()
            lost_s = clock.monotonic_s()
            with trio.move_on_after(TAKEN_OVER_WITHIN_S):
                while loss.seconds is None and not unreachable:
                    await trio.sleep(_LOOK_S)
                    try:
                        loss.after = await work_of(client, dc)
                    except Unreachable as error:
                        unreachable.append(error)
                    if is_taken_over(loss.before, loss.after, victim.node):
                        loss.seconds = clock.monotonic_s() - lost_s
    if unreachable:
        raise unreachable[0]
    return loss


async def work_of(client: httpx.AsyncClient, dc: Datacentre) -> Work:
    """Who delivers what in a datacentre, by its management; includes idle nodes."""
    try:
        answer = await client.get(f"{dc.management}/balancer")
        answer.raise_for_status()
    except httpx.HTTPError as error:
        raise Unreachable(f"{dc.management}/balancer: {error!r}") from error
    (shown,) = [each for each in answer.json()["datacenters"] if each["datacenter"] == dc.name]
    work: Work = {member["node"]: {} for member in shown["members"]}
    for subscription in shown["subscriptions"]:
        name = subscription["subscription"].partition("$")[2]
        for owner in subscription["owners"]:
            work.setdefault(owner["node"], {})[name] = tuple(owner["partitions"])
    return work


def is_taken_over(before: Work, after: Work, lost: str) -> bool:
    """True if all work has an owner again, and the lost node has none."""
    if lost in after:
        return False
    return _partitions(before) <= _partitions(after)


def _partitions(work: Work) -> set[tuple[str, int]]:
    return {
        (subscription, partition)
        for owned in work.values()
        for subscription, partitions in owned.items()
        for partition in partitions
    }


def show_loss(console: Console, dc: str, loss: Loss, files: list[DeliveryFile]) -> None:
    """Print who delivered what before and after, and what the subscribers noticed."""
    victim = loss.victim
    table = Table(
        title=f"Who delivers what in {dc}: subscriber and partitions", title_justify="left"
    )
    for heading in ("node", "before", f"after {victim.node} was lost"):
        table.add_column(heading)
    for node in sorted({*loss.before, *loss.after}):
        after = "lost" if node == victim.node else _shown(loss.after.get(node, {}))
        table.add_row(node, _shown(loss.before.get(node, {})), after)
    console.print(table)
    sent_ms = {each.message_id: each.sent_ms for each in loss.outcomes if each.is_accepted}
    waits = [wait for each in files for wait in each.latencies_ms(sent_ms)]
    took = (
        "not taken over in time" if loss.seconds is None else f"taken over in {loss.seconds:.1f} s"
    )
    console.print(
        f"{victim.node} was {victim.how} while {len(sent_ms):,} rows were published: its work was "
        f"{took}, and a row waited at most {max(waits, default=0.0) / 1_000:.1f} s"
    )


def _shown(work: dict[str, tuple[int, ...]]) -> str:
    owned = [f"{name} {_ranges(each)}" for name, each in sorted(work.items())]
    return "  ".join(owned) or "-"


def _ranges(partitions: tuple[int, ...]) -> str:
    """`0-3,5` for 0, 1, 2, 3, 5."""
    runs: list[list[int]] = []
    for each in sorted(partitions):
        if runs and each == runs[-1][-1] + 1:
            runs[-1].append(each)
        else:
            runs.append([each])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
