"""`hermes subscription lag|retransmit`: shows and changes the positions of subscriptions."""

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

import typer

from hermes_actors.cli.administration.arguments import SubscriptionArgument, TopicArgument
from hermes_actors.cli.administration.resource import subscription_path
from hermes_actors.cli.command_line.bodies import TIME_HELP, time_to_send
from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_actors.cli.command_line.options import YesOption, confirm, wants_json
from hermes_actors.cli.connection.asking import management, management_command
from hermes_actors.cli.dlq import say_letters
from hermes_actors.cli.output.render import (
    Columns,
    Fields,
    fields_of,
    known,
    parsed_object,
    say,
    show_answer,
    show_table,
)

app = typer.Typer()

Positions = dict[tuple[str, Any], int]
"""By datacentre and partition."""

RETRANSMISSION_TIMEOUT_S = 60.0
"""The server waits up to 30 s for the consumers, after it has waited for logs."""


_LAG_COLUMNS = {
    "DC": "datacenter",
    "Partition": "partition",
    "Position": "position",
    "End": "end",
    "Lag": "lag",
}


def _partitions(found: Fields) -> list[Fields]:
    """Return all partitions of all datacentres, each with its datacentre."""
    return [
        {"datacenter": str(dc.get("datacenter")), **partition}
        for dc in fields_of(found, "datacenters")
        for partition in fields_of(dc, "partitions")
    ]


@management_command(app, "hermes subscription lag shop.orders billing")
def lag(topic: TopicArgument, subscription: SubscriptionArgument) -> None:
    """Show the number of undelivered messages for each datacentre and partition.

    A message that waits for a retry counts as one, even if later ones were delivered.
    """
    path = f"{subscription_path(topic, subscription)}/lag"
    show_answer(management().get(path), partial(_show_lag, topic, subscription))


def _show_lag(topic: str, subscription: str, found: Fields) -> None:
    show_table(_LAG_COLUMNS, _partitions(found), "no partition is known")
    for dc in fields_of(found, "datacenters"):
        if reason := dc.get("reason"):
            say(f"{dc.get('datacenter')}: {reason}")
    say(f"total: {known(found.get('lag'))}")
    say_letters(topic, subscription, found)


@management_command(
    app,
    "hermes subscription retransmit shop.orders billing --to 2026-01-31T12:00:00Z --dry-run",
    "hermes subscription retransmit shop.orders billing --to end",
    "hermes subscription retransmit shop.orders billing --offset dc1/0=4200 --offset dc2/3=0",
)
def retransmit(
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="TIME|start|end", help=f"New position in all datacentres; TIME: {TIME_HELP}."
        ),
    ] = None,
    offset: Annotated[
        list[str] | None,
        typer.Option(metavar="DC/PARTITION=N", help="New position in one partition; repeatable."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the new positions and their effect.")
    ] = False,
    yes: YesOption = False,
) -> None:
    """Move a subscription in its topic: back, to deliver again, or forward, to skip.

    The subscription may be suspended. Returns when its consumers have moved.
    """
    body = retransmission(to, offset)
    if to == "end" and not dry_run:
        what = f"all undelivered messages of subscription {subscription} of {topic}"
        confirm(what, yes, "skip")
    path = subscription_path(topic, subscription)
    query = "?dryRun=true" if dry_run else ""
    content = management().put(
        f"{path}/retransmission{query}", body, timeout_s=RETRANSMISSION_TIMEOUT_S
    )
    positions: Positions | None = None
    if dry_run and not wants_json():
        standing = _partitions(parsed_object(management().get(f"{path}/lag")))
        positions = {
            (each["datacenter"], each.get("partition")): each["position"]
            for each in standing
            if isinstance(each.get("position"), int)
        }
    show_answer(content, partial(_show_offsets, body, positions))
    if not wants_json():
        what = "would continue" if dry_run else "continues"
        say(f"subscription {subscription} of {topic} {what} from there")


def _show_offsets(body: Fields, positions: Positions | None, found: Fields) -> None:
    """Print the new positions; for a dry run, with the difference from `positions`."""
    columns: Columns = {"DC": "datacenter", "Partition": "partition", "Offset": "offset"}
    if positions is not None:
        columns = {**columns, "Means": partial(_moved, positions)}
    rows = [{"datacenter": dc, **entry} for dc in found for entry in fields_of(found, dc)]
    show_table(columns, rows, "no partition is known")
    for line in _kept_within(body, found):
        say(line)
    for dc in found:
        if not fields_of(found, dc) and "offsets" not in body:
            say(f"{dc}: its log does not answer; the position is determined when it does")


def _moved(positions: Positions, entry: Fields) -> str:
    offset = entry.get("offset")
    position = positions.get((entry["datacenter"], entry.get("partition")))
    if position is None or not isinstance(offset, int):
        return "?"
    if offset == position:
        return "stays"
    return f"{position - offset} again" if offset < position else f"{offset - position} skipped"


def _kept_within(body: Fields, found: Fields) -> Iterator[str]:
    """Yield a line for each position that the server changed, because the log does not have the
    requested offset.
    """
    for dc, asked in body.get("offsets", {}).items():
        for entry in fields_of(found, dc):
            wanted, got = asked.get(str(entry.get("partition"))), entry.get("offset")
            if wanted is not None and wanted != got:
                edge = "begins" if isinstance(got, int) and got > wanted else "ends"
                yield (
                    f"{dc}/{entry.get('partition')}: not at {wanted}, because the log "
                    f"{edge} at {got}"
                )


def retransmission(to: str | None, offsets: list[str] | None) -> dict[str, Any]:
    """Return the request body for the options. Raises UsageWrong."""
    if bool(to) == bool(offsets):
        raise UsageWrong(
            "give the new position: --to with a time, start or end, or --offset DC/PARTITION=N, "
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
