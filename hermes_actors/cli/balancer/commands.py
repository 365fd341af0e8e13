"""`hermes balancer …`: who runs what, why, and what would change; drained nodes, constraints."""

import json as json_text
from functools import partial
from typing import Annotated, Any

import typer

from hermes_actors.cli.balancer import operating
from hermes_actors.cli.balancer.odd import is_calm, newest, odd, odd_of_datacenter, odd_of_node
from hermes_actors.cli.balancer.tables import (
    show_changes,
    show_heading,
    show_members,
    show_moves,
    show_owners,
    show_planned_nodes,
    show_troubles,
    skews,
)
from hermes_actors.cli.command_line.options import (
    Output,
    OutputOption,
)
from hermes_actors.cli.command_line.plain import command_group
from hermes_actors.cli.connection.asking import management_command
from hermes_actors.cli.connection.management import ManagementClient
from hermes_actors.cli.output.render import (
    counted,
    fields_of,
    parsed_object,
    printable,
    say,
    show_answer,
    write_json,
)

app = command_group("The balancer: which node runs which subscription, and why.")
_FOLLOWS_NONE = "the node that was asked follows no datacentre's coordination"
app.add_typer(operating.app)


@management_command(
    app,
    "hermes balancer status",
    "hermes balancer status --odd",
    "hermes balancer status --node node-a",
    "hermes balancer status --subscription 'shop.orders$billing' --json",
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
    only_odd: Annotated[
        bool, typer.Option("--odd", help="Only what is not as it should be, and why.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show who takes part, who leads, who runs what, and what waits for what."""
    asked = {"subscription": subscription, "node": node}
    content = client.get("/balancer", {key: each for key, each in asked.items() if each})
    if only_odd:
        _show_odd(fields_of(parsed_object(content), "datacenters"), output)
    else:
        show_answer(content, output, _show_status)


def _show_status(found: dict[str, Any]) -> None:
    datacenters = fields_of(found, "datacenters")
    for dc in datacenters:
        show_heading(dc)
    if not datacenters:
        say(_FOLLOWS_NONE)
        return
    show_members(datacenters)
    show_owners(datacenters)
    show_troubles(datacenters)


def _show_odd(datacenters: list[dict[str, Any]], output: Output) -> None:
    left = [each for each in map(odd, datacenters) if not is_calm(each)]
    if output is Output.JSON:
        write_json(json_text.dumps({"datacenters": left}).encode())
        return
    if not datacenters:
        say(_FOLLOWS_NONE)
    elif not left:
        nodes = sum(len(fields_of(dc, "members")) for dc in datacenters)
        runs = sum(len(fields_of(dc, "subscriptions")) for dc in datacenters)
        say(
            f"all is as it should be: {counted(len(datacenters), 'datacentre')}, "
            f"{counted(nodes, 'node')}, {counted(runs, 'subscription')} that run"
        )
    for dc in left:
        name = dc.get("datacenter")
        if said := "; ".join(odd_of_datacenter(dc)):
            say(printable(f"{name}: {said}"))
        for each in fields_of(dc, "members"):
            say(printable(f"{name} {each.get('node')}: {'; '.join(odd_of_node(each, dc))}"))
    if any(fields_of(dc, "subscriptions") for dc in left):
        show_owners(left)
    show_troubles(left)


def _show_plan(found: dict[str, Any]) -> None:
    shown = found.get("plan")
    planned: dict[str, Any] = shown if isinstance(shown, dict) else {}
    changes = fields_of(planned, "changes")
    show_changes(changes)
    show_planned_nodes(fields_of(planned, "nodes"))
    moves = planned.get("moves", 0)
    say(
        printable(
            f"{found.get('datacenter')}: {counted(moves, 'task')} would begin elsewhere; the node "
            f"that carries most: {skews(planned.get('before'), planned.get('after'))}; "
            "nothing was changed"
        )
    )
    if planned.get("unplaced"):
        say(f"no node has room for {counted(planned['unplaced'], 'owner')} that are wanted")
    if planned.get("hasMore"):
        say("the next round would go on: this one moves no more than its budget")


@management_command(app, "hermes balancer plan --dry-run", show=_show_plan)
def plan(
    client: ManagementClient,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", show_default=False, help="Always so: the leader alone plans."),
    ] = True,
    dc: Annotated[
        str, typer.Option("--dc", metavar="DC", help="By default that of the node asked.")
    ] = "",
) -> bytes:
    """Show what the planner would change now, with reasons; nothing is changed."""
    del dry_run
    return client.get("/balancer/plan", {"dc": dc} if dc else None)


@management_command(
    app,
    "hermes balancer explain",
    "hermes balancer explain --limit 10",
    "hermes balancer explain shop.orders billing",
    "hermes balancer explain node-a",
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
            "--limit", min=0, metavar="N", help="The newest N moves.", show_default="all known"
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show why a subscription runs where it runs, and the last moves with their reasons."""
    asked = f"{about}${name}" if name else about
    content = client.get("/balancer/explain", {"about": asked} if asked else None)
    left_out = 0
    if limit is not None:
        found = parsed_object(content)
        datacenters, left_out = newest(fields_of(found, "datacenters"), limit)
        content = json_text.dumps({**found, "datacenters": datacenters}).encode()
    show = partial(_show_explained, asked, has_moves=limit != 0)
    show_answer(content, output, show)
    if left_out and output is Output.TABLE:
        say(f"{left_out} older ones are not shown; without --limit all are")


def _show_explained(asked: str, found: dict[str, Any], *, has_moves: bool) -> None:
    datacenters = fields_of(found, "datacenters")
    for dc in datacenters:
        if asked and dc.get("isKnown") and not (dc.get("why") or dc.get("moves")):
            continue
        show_heading(dc)
        why = dc.get("why")
        for sentence in why if isinstance(why, list) else ():
            say(printable(f"  {sentence}"))
    if has_moves:
        show_moves(datacenters)
