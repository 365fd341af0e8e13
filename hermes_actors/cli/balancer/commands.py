"""`hermes balancer …`: who runs what, why, and what would change; drained nodes, constraints."""

from typing import Annotated, Any

import typer

from hermes_actors.cli.balancer import operating
from hermes_actors.cli.balancer.tables import (
    show_changes,
    show_heading,
    show_members,
    show_moves,
    show_owners,
    show_troubles,
)
from hermes_actors.cli.command_line.plain import command_group
from hermes_actors.cli.connection.asking import management_command
from hermes_actors.cli.connection.management import ManagementClient
from hermes_actors.cli.output.render import counted, fields_of, printable, say

app = command_group("The balancer: which node runs which subscription, and why.")
app.add_typer(operating.app)


def _show_status(found: dict[str, Any]) -> None:
    datacenters = fields_of(found, "datacenters")
    if not datacenters:
        say("the node that was asked follows no datacentre's coordination")
        return
    for dc in datacenters:
        show_heading(dc)
    show_members(datacenters)
    show_owners(datacenters)
    show_troubles(datacenters)


@management_command(
    app,
    "hermes balancer status",
    "hermes balancer status --node node-a",
    "hermes balancer status --subscription 'shop.orders$billing' --json",
    show=_show_status,
)
def status(
    client: ManagementClient,
    subscription: Annotated[
        str,
        typer.Option(
            "--subscription", metavar="NAME", help="Only 'group.topic$name', or all of a topic."
        ),
    ] = "",
    node: Annotated[
        str, typer.Option("--node", metavar="NODE", help="Only this node and what it has.")
    ] = "",
) -> bytes:
    """Show who takes part, who leads, who runs what, and what waits for what."""
    asked = {"subscription": subscription, "node": node}
    return client.get("/balancer", {key: each for key, each in asked.items() if each})


def _show_plan(found: dict[str, Any]) -> None:
    plan = found.get("plan") or {}
    show_changes(fields_of(plan, "changes"))
    moves = counted(plan.get("moves", 0), "task")
    say(printable(f"{found.get('datacenter')}: {moves} would move; nothing was changed"))


@management_command(app, "hermes balancer plan", show=_show_plan)
def plan(
    client: ManagementClient,
    dc: Annotated[
        str, typer.Option("--dc", metavar="DC", help="By default that of the node asked.")
    ] = "",
) -> bytes:
    """Show what the planner would change now, with reasons; nothing is changed."""
    return client.get("/balancer/plan", {"dc": dc} if dc else None)


def _show_explained(found: dict[str, Any], limit: int | None) -> None:
    datacenters = fields_of(found, "datacenters")
    for dc in datacenters:
        show_heading(dc)
    if found.get("about"):
        show_members(datacenters)
        show_owners(datacenters)
        show_troubles(datacenters)
        say("")
    show_moves(datacenters, limit)


@management_command(
    app,
    "hermes balancer explain",
    "hermes balancer explain --limit 10",
    "hermes balancer explain shop.orders billing",
    "hermes balancer explain node-a",
    show=_show_explained,
)
def explain(
    client: ManagementClient,
    about: Annotated[
        str,
        typer.Argument(metavar="SUBSCRIPTION|NODE", help="'group.topic$name', or a node's name."),
    ] = "",
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="The subscription's, where a topic stands before."),
    ] = "",
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=0, metavar="N", help="Show the newest N.", show_default="all known"
        ),
    ] = None,
) -> bytes:
    """Show where a subscription runs or what a node has, and the last moves with their reasons."""
    del limit
    asked = f"{about}${name}" if name else about
    return client.get("/balancer/explain", {"about": asked} if asked else None)
