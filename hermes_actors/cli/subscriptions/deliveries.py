"""`hermes subscription lag|retransmit`: where subscriptions are, and where they go on."""

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

import typer

from hermes_actors.cli.administration.resource import SUBSCRIPTION, subscription_path
from hermes_actors.cli.command_line.bodies import TIME_HELP, time_to_send
from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_actors.cli.command_line.options import Output, OutputOption, YesOption, confirm
from hermes_actors.cli.command_line.plain import PlainGroup
from hermes_actors.cli.connection.asking import management_command
from hermes_actors.cli.connection.management import ManagementClient
from hermes_actors.cli.dlq.selection import say_letters
from hermes_actors.cli.output.render import (
    fields_of,
    known,
    parsed_object,
    printable,
    say,
    show_answer,
    show_rows,
)

app = typer.Typer(cls=PlainGroup, rich_markup_mode="rich")

Positions = dict[tuple[str, Any], int]
"""By datacentre and partition."""

RETRANSMISSION_TIMEOUT_S = 60.0
"""The server waits up to 30 s for the consumers, and before that for logs that do not answer."""


def _figures(partition: dict[str, Any]) -> list[str]:
    names = ("partition", "position", "end", "lag")
    return [known(partition.get(name)) for name in names]


def _show_lag(found: dict[str, Any], topic: str, subscription: str) -> None:
    datacenters = fields_of(found, "datacenters")
    rows = [
        [str(dc.get("datacenter", "")), *_figures(partition)]
        for dc in datacenters
        for partition in fields_of(dc, "partitions")
    ]
    show_rows(("DC", "Partition", "Position", "End", "Lag"), rows, "no partition is known")
    for dc in datacenters:
        if reason := dc.get("reason"):
            say(printable(f"{dc.get('datacenter')}: {reason}"))
    say(f"in all: {known(found.get('lag'))}")
    say_letters(topic, subscription, found)


@management_command(
    app,
    "hermes subscription lag shop.orders billing",
    arguments=SUBSCRIPTION.arguments,
    show=_show_lag,
)
def lag(client: ManagementClient, topic: str, subscription: str) -> bytes:
    """Show for each datacentre and partition what is not delivered yet.

    A message that waits for its retry counts as one, whatever was delivered after it.
    """
    return client.get(f"{subscription_path(topic, subscription)}/lag")


@management_command(
    app,
    "hermes subscription retransmit shop.orders billing --to 2026-01-31T12:00:00Z --dry-run",
    "hermes subscription retransmit shop.orders billing --to end",
    "hermes subscription retransmit shop.orders billing --offset dc1/0=4200 --offset dc2/3=0",
    arguments=SUBSCRIPTION.arguments,
)
def retransmit(
    client: ManagementClient,
    topic: str,
    subscription: str,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="TIME|start|end", help=f"Where to go on, in all datacentres; TIME: {TIME_HELP}."
        ),
    ] = None,
    offset: Annotated[
        list[str] | None,
        typer.Option(metavar="DC/PARTITION=N", help="Where to go on in one partition; repeatable."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show where it would go on, and what that means.")
    ] = False,
    yes: YesOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Go on somewhere else in the topic: back, to deliver again, or forward, to skip.

    The subscription may be suspended. Returns when its consumers have gone there.
    """
    body = retransmission(to, offset)
    if to == "end" and not dry_run:
        what = f"all that subscription {subscription} of {topic} has not been delivered yet"
        confirm(what, yes, "skip")
    path = f"{subscription_path(topic, subscription)}/retransmission"
    if dry_run:
        path += "?dryRun=true"
    content = client.put(path, body, timeout_s=RETRANSMISSION_TIMEOUT_S)
    is_shown = dry_run and output is Output.TABLE
    now = client.get(f"{subscription_path(topic, subscription)}/lag") if is_shown else b"{}"
    show = partial(_show_offsets, body, _positions(parsed_object(now)) if dry_run else None)
    show_answer(content, output, show)
    if output is Output.TABLE:
        what = "would go on" if dry_run else "goes on"
        say(f"subscription {printable(subscription)} of {printable(topic)} {what} there")


def _show_offsets(body: dict[str, Any], positions: Positions | None, found: dict[str, Any]) -> None:
    """Where the server goes on; for a dry run, with what that means for those `positions`."""
    columns = ("DC", "Partition", "Offset", *(() if positions is None else ("Means",)))
    rows: list[list[str]] = []
    for dc in found:
        for entry in fields_of(found, dc):
            partition = entry.get("partition")
            row = [dc, known(partition), known(entry.get("offset"))]
            if positions is not None:
                row.append(_moved(entry, positions.get((dc, partition))))
            rows.append(row)
    show_rows(columns, rows, "no partition is known")
    for line in _kept_within(body, found):
        say(printable(line))
    for dc in found:
        if not fields_of(found, dc) and "offsets" not in body:
            say(printable(f"{dc}: its log does not answer; found out there when it does"))


def _positions(lag: dict[str, Any]) -> Positions:
    """Where each partition of each datacentre stands, as far as that is known."""
    return {
        (str(dc.get("datacenter")), partition.get("partition")): partition["position"]
        for dc in fields_of(lag, "datacenters")
        for partition in fields_of(dc, "partitions")
        if isinstance(partition.get("position"), int)
    }


def _moved(entry: dict[str, Any], position: int | None) -> str:
    offset = entry.get("offset")
    if position is None or not isinstance(offset, int):
        return "?"
    if offset == position:
        return "stays"
    return f"{position - offset} again" if offset < position else f"{offset - position} skipped"


def _kept_within(body: dict[str, Any], found: dict[str, Any]) -> Iterator[str]:
    """Where the server has gone on elsewhere than was asked for: the log holds no such offset."""
    for dc, asked in body.get("offsets", {}).items():
        for entry in fields_of(found, dc):
            wanted, got = asked.get(str(entry.get("partition"))), entry.get("offset")
            if wanted is not None and wanted != got:
                edge = "begins" if isinstance(got, int) and got > wanted else "ends"
                yield (
                    f"{dc}/{entry.get('partition')}: not at {wanted}, for what the log holds "
                    f"{edge} at {got}"
                )


def retransmission(to: str | None, offsets: list[str] | None) -> dict[str, Any]:
    """The body that the options mean. Raises UsageWrong."""
    if bool(to) == bool(offsets):
        raise UsageWrong(
            "say where to go on: --to with a time, start or end, or --offset DC/PARTITION=N, "
            "not both"
        )
    if offsets:
        return {"offsets": _offsets(offsets)}
    assert to is not None, "one of the two was given"
    if to in ("start", "end"):
        return {"to": to}
    return {"retransmissionDate": time_to_send("--to", to, "start, end, ")}


def _offsets(texts: list[str]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for text in texts:
        place, _, number = text.partition("=")
        dc, _, partition = place.rpartition("/")
        if not dc or not partition.isdecimal() or not number.isdecimal():
            raise UsageWrong(f"--offset '{text}': expected DC/PARTITION=N, for example dc1/0=4200")
        if partition in found.setdefault(dc, {}):
            raise UsageWrong(f"--offset '{text}': partition {partition} of {dc} is given twice")
        found[dc][partition] = int(number)
    return found
