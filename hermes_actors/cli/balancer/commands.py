"""`hermes balancer status|plan|explain`: owners of subscriptions, reasons, and planned changes."""

from functools import partial
from typing import Annotated

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
from hermes_actors.cli.connection.asking import management, management_command
from hermes_actors.cli.output.render import Fields, counted, fields_of, say, show_answer

app = command_group("The balancer: which node runs which subscription, and why.")
app.add_typer(operating.app)


def _show_status(found: Fields) -> None:
    datacenters = fields_of(found, "datacenters")
    if not datacenters:
        say("this node does not follow any datacentre's coordination")
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
)
def status(
    subscription: Annotated[
        str,
        typer.Option(
            "--subscription",
            metavar="NAME",
            help="Only this one ('group.topic$name'), or all of a topic.",
        ),
    ] = "",
    node: Annotated[
        str, typer.Option("--node", metavar="NODE", help="Only this node and its subscriptions.")
    ] = "",
) -> None:
    """Show the nodes, the leader, the owners, and the moves in progress."""
    asked = {"subscription": subscription, "node": node}
    params = {key: each for key, each in asked.items() if each}
    show_answer(management().get("/balancer", params), _show_status)


def _show_plan(found: Fields) -> None:
    plan = found.get("plan") or {}
    show_changes(fields_of(plan, "changes"))
    moves = counted(plan.get("moves", 0), "task")
    say(f"{found.get('datacenter')}: {moves} would move; nothing was changed")


@management_command(app, "hermes balancer plan")
def plan(
    dc: Annotated[
        str, typer.Option("--dc", metavar="DC", help="Default: the answering node's.")
    ] = "",
) -> None:
    """Show what the planner would change now, and why. Changes nothing."""
    show_answer(management().get("/balancer/plan", {"dc": dc} if dc else None), _show_plan)


def _show_explained(limit: int | None, found: Fields) -> None:
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
)
def explain(
    about: Annotated[
        str,
        typer.Argument(metavar="SUBSCRIPTION|NODE", help="'group.topic$name', or a node's name."),
    ] = "",
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="The subscription's, if the first argument is a topic."
        ),
    ] = "",
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=0, metavar="N", help="Show the newest N.", show_default="all known"
        ),
    ] = None,
) -> None:
    """Show a subscription's nodes or a node's subscriptions, and the last moves with reasons."""
    asked = f"{about}${name}" if name else about
    content = management().get("/balancer/explain", {"about": asked} if asked else None)
    show_answer(content, partial(_show_explained, limit))
