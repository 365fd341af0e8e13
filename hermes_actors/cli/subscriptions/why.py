"""`hermes subscription why`: what holds a subscription back, or that nothing does."""

from functools import partial
from typing import Any

import typer

from hermes_actors.cli.administration.resource import SUBSCRIPTION, subscription_path
from hermes_actors.cli.command_line.options import Output, OutputOption
from hermes_actors.cli.command_line.plain import PlainGroup
from hermes_actors.cli.connection.asking import management_command
from hermes_actors.cli.connection.management import ManagementClient
from hermes_actors.cli.dlq.selection import say_letters
from hermes_actors.cli.output.render import (
    fields_of,
    known,
    printable,
    say,
    say_wrapped,
    show_answer,
    show_rows,
)
from hermes_actors.cli.output.watching import WatchOption, watched

app = typer.Typer(cls=PlainGroup, rich_markup_mode="rich")


@management_command(
    app, "hermes subscription why shop.orders billing", arguments=SUBSCRIPTION.arguments
)
def why(
    client: ManagementClient,
    topic: str,
    subscription: str,
    watch: WatchOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Say for each datacentre and node what holds a subscription back, or that it is delivered."""
    path = f"{subscription_path(topic, subscription)}/why"
    show_one = partial(_show_why, topic, subscription)
    watched(lambda: show_answer(client.get(path), output, show_one), watch)


def _show_why(topic: str, subscription: str, found: dict[str, Any]) -> None:
    say(f"subscription {printable(subscription)} of {printable(topic)} is {found.get('state')}")
    if found.get("state") == "SUSPENDED":
        by = f"{found['suspensionReason']}; " if found.get("suspensionReason") else ""
        way_out = f"to deliver again: 'hermes subscription activate {topic} {subscription}'"
        say(printable(by + way_out))
    rows, lines = [], []
    for dc in fields_of(found, "datacenters"):
        name, nodes = str(dc.get("datacenter", "")), fields_of(dc, "nodes")
        if not nodes or not dc.get("isKnown"):
            rows.append([name, "", "", "", "", str(dc.get("reason", ""))])
        for node in nodes:
            rows.append(_row(name, node))
            if details := "; ".join(str(each.get("text")) for each in fields_of(node, "details")):
                lines.append(f"{name} {node.get('node')}: {details}")
    nothing = "the node that was asked follows no node's status"
    show_rows(_COLUMNS, rows, nothing, has_sentences=True)
    for line in lines:
        say_wrapped(line)
    say_letters(topic, subscription, found)


_COLUMNS = ("DC", "Node", "State", "Deliv./s", "Lag", "Reason")


def _row(dc: str, node: dict[str, Any]) -> list[str]:
    return [
        dc,
        str(node.get("node", "")),
        str(node.get("state", "")),
        f"{node.get('rate', 0):.1f}",
        known(node.get("lag")),
        str(node.get("reason", "")),
    ]
