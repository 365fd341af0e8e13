"""Publishes the flights over HTTP, each at the datacentre of its airport."""

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, NamedTuple

import trio
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from hermes_actors.cli.publishing.publisher import (
    BulkPublisher,
    OutgoingMessage,
    PublishPlan,
    PublishResult,
    Unreachable,
)
from hermes_actors.runtime.clock import SystemClock, system_rng

CONNECTIONS_EACH = 16
RETRIES = 5


def progress(console: Console) -> Progress:
    """The demonstration's progress bars."""
    return Progress(
        TextColumn("{task.description:>14}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )


def shares_of(
    flights: list[tuple[int, bytes]],
) -> tuple[list[OutgoingMessage], list[OutgoingMessage]]:
    """EWR's flights, and JFK's and LGA's. The key is the aircraft's number, if known."""
    newark: list[OutgoingMessage] = []
    others: list[OutgoingMessage] = []
    for number, row in flights:
        flight = json.loads(row)
        share = newark if flight["origin"] == "EWR" else others
        share.append(OutgoingMessage(number, row, flight["tailnum"]))
    return newark, others


@dataclass(frozen=True)
class Datacentre:
    """The addresses of one datacentre: base URLs of its frontends and its management, and its log
    as `hermes spark` names it, an empty string if unknown.
    """

    name: str
    frontends: list[str]
    management: str
    log: str = ""


class Share(NamedTuple):
    """What one frontend is sent, over how many connections."""

    messages: list[OutgoingMessage]
    connections: int


def datacentres_of(ready: dict[str, Any]) -> list[Datacentre]:
    """The datacentres in a ready line. `publish` is used if there are no `frontends`, and an
    embedded log below `data` if there is no `log`.
    """
    data = ready.get("data")
    return [
        Datacentre(
            dc["dc"],
            dc.get("frontends") or [dc["publish"]],
            dc["management"],
            dc.get("log") or (f"embedded:{data}/{dc['dc']}" if data else ""),
        )
        for dc in ready["dcs"]
    ]


async def publish_all(
    flights: list[tuple[int, bytes]],
    dcs: list[Datacentre],
    topic: str,
    console: Console,
    rate_per_s: float,
) -> tuple[list[PublishResult], float]:
    """Publish every row, distributed over its datacentre's frontends. Return the outcomes and
    seconds.

    Sends `rate_per_s` rows a second in the given order; 0: as fast as they are answered. Raises
    Unreachable.
    """
    clock = SystemClock()
    outcomes: list[PublishResult] = []
    unreachable: list[Unreachable] = []

    async def publish_share(bars: Progress, bar: TaskID, url: str, share: Share) -> None:
        def done(outcome: PublishResult) -> None:
            outcomes.append(outcome)
            bars.advance(bar)

        plan = PublishPlan(url, topic, share.connections, RETRIES)
        try:
            messages = stream(share.messages, first, rate_per_s)
            await BulkPublisher(plan, done, clock, system_rng()).run(messages)
        except Unreachable as error:
            unreachable.append(error)

    first = flights[0][0] if flights else 0
    began_s = clock.monotonic_s()
    with progress(console) as bars:
        async with trio.open_nursery() as nursery:
            for dc, messages in zip(dcs, shares_of(flights), strict=False):
                bar = bars.add_task(f"publish {dc.name}", total=len(messages))
                count = len(dc.frontends)
                for number, url in enumerate(dc.frontends):
                    share = Share(messages[number::count], CONNECTIONS_EACH // count)
                    nursery.start_soon(publish_share, bars, bar, url, share)
    if unreachable:
        raise unreachable[0]
    return outcomes, clock.monotonic_s() - began_s


async def stream(
    share: list[OutgoingMessage], first: int, rate_per_s: float
) -> AsyncGenerator[OutgoingMessage, None]:
    """Yield the messages, each when it is due by its distance from the row `first`."""
    began_s = trio.current_time()
    for message in share:
        if rate_per_s:
            await trio.sleep_until(began_s + (message.number - first) / rate_per_s)
        yield message
