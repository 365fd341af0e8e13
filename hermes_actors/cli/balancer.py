"""`hermes balancer …`: who runs what, why, and what would change; drained nodes, constraints."""

from typing import Annotated, Any

import typer

from hermes_actors.cli import balancer_constraints, draining
from hermes_actors.cli.balancer_tables import (
    show_changes,
    show_heading,
    show_members,
    show_moves,
    show_owners,
    show_planned_nodes,
    show_troubles,
    skews,
)
from hermes_actors.cli.management import ManagementClient
from hermes_actors.cli.options import (
    MANAGEMENT_URL_DEFAULT,
    JsonOption,
    ManagementOption,
    Output,
    OutputOption,
    examples,
)
from hermes_actors.cli.plain import PlainCommand, command_group
from hermes_actors.cli.render import (
    counted,
    fields_of,
    parsed_object,
    printable,
    say,
    write_json,
)

app = command_group("The balancer: which node runs which subscription, and why.")
app.add_typer(draining.app)
app.add_typer(balancer_constraints.app)


@app.command(
    cls=PlainCommand,
    epilog=examples(
        "hermes balancer status",
        "hermes balancer status --node node-a",
        "hermes balancer status --subscription 'shop.orders$billing' --json",
    ),
)
def status(
    subscription: Annotated[
        str,
        typer.Option(
            "--subscription", metavar="NAME", help="Only 'group.topic$name', or all of a topic."
        ),
    ] = "",
    node: Annotated[
        str, typer.Option("--node", metavar="NODE", help="Only this node and what it has.")
    ] = "",
    management: ManagementOption = MANAGEMENT_URL_DEFAULT,
    output: OutputOption = Output.TABLE,
    json: JsonOption = False,
) -> None:
    """Show who takes part, who leads, who runs what, and what waits for what."""
    asked = {"subscription": subscription, "node": node}
    with ManagementClient(management) as client:
        content = client.get("/balancer", {key: each for key, each in asked.items() if each})
    if json or output is Output.JSON:
        write_json(content)
        return
    datacenters = fields_of(parsed_object(content), "datacenters")
    for dc in datacenters:
        show_heading(dc)
    if not datacenters:
        say("the node that was asked follows no datacentre's coordination")
        return
    show_members(datacenters)
    show_owners(datacenters)
    show_troubles(datacenters)


@app.command(
    cls=PlainCommand,
    epilog=examples("hermes balancer plan --dry-run", "hermes balancer plan --dry-run --dc dc2"),
)
def plan(
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", show_default=False, help="Always so: the leader alone plans."),
    ] = True,
    dc: Annotated[
        str, typer.Option("--dc", metavar="DC", help="By default that of the node asked.")
    ] = "",
    management: ManagementOption = MANAGEMENT_URL_DEFAULT,
    output: OutputOption = Output.TABLE,
    json: JsonOption = False,
) -> None:
    """Show what the planner would change now, with reasons; nothing is changed."""
    del dry_run
    with ManagementClient(management) as client:
        content = client.get("/balancer/plan", {"dc": dc} if dc else None)
    if json or output is Output.JSON:
        write_json(content)
        return
    found = parsed_object(content)
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


@app.command(
    cls=PlainCommand,
    epilog=examples(
        "hermes balancer explain",
        "hermes balancer explain shop.orders billing",
        "hermes balancer explain node-a",
    ),
)
def explain(
    about: Annotated[
        str,
        typer.Argument(metavar="SUBSCRIPTION|NODE", help="'group.topic$name', or a node's name."),
    ] = "",
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="The subscription's, where a topic stands before."),
    ] = "",
    management: ManagementOption = MANAGEMENT_URL_DEFAULT,
    output: OutputOption = Output.TABLE,
    json: JsonOption = False,
) -> None:
    """Show why a subscription runs where it runs, and the last moves with their reasons."""
    asked = f"{about}${name}" if name else about
    with ManagementClient(management) as client:
        content = client.get("/balancer/explain", {"about": asked} if asked else None)
    if json or output is Output.JSON:
        write_json(content)
        return
    datacenters = fields_of(parsed_object(content), "datacenters")
    for dc in datacenters:
        if asked and dc.get("isKnown") and not (dc.get("why") or dc.get("moves")):
            continue
        show_heading(dc)
        why = dc.get("why")
        for sentence in why if isinstance(why, list) else ():
            say(printable(f"  {sentence}"))
    show_moves(datacenters)
