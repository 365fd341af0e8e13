"""`hermes status`: all nodes of all datacentres, and how they fare."""

from typing import Any

import typer

from hermes_actors.cli.management import ManagementClient
from hermes_actors.cli.options import (
    MANAGEMENT_URL_DEFAULT,
    ManagementOption,
    Output,
    OutputOption,
    examples,
)
from hermes_actors.cli.plain import PlainCommand
from hermes_actors.cli.render import (
    fields_of,
    parsed_object,
    printable,
    say,
    show_rows,
    write_json,
)

app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich")

_COLUMNS = ("DC", "Node", "State", "Age", "Publ./s", "Deliv./s", "Subscr.", "Ill", "Roles")


@app.command(cls=PlainCommand, epilog=examples("hermes status", "hermes status --output json"))
def status(
    management: ManagementOption = MANAGEMENT_URL_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show all nodes of all datacentres, as the node that is asked has heard of them."""
    with ManagementClient(management) as client:
        content = client.get("/status/nodes")
    if output is Output.JSON:
        write_json(content)
        return
    found = parsed_object(content)
    nodes = fields_of(found, "nodes")
    rows = [_row(node) for node in nodes]
    show_rows(_COLUMNS, rows, "no node is known", optional=("Roles",))
    # Sentences do not fit into a column beside so many others.
    for datacenter in fields_of(found, "datacenters"):
        if not datacenter.get("isKnown"):
            say(printable(f"{datacenter.get('datacenter')}: {datacenter.get('reason')}"))
    for node in nodes:
        # Of an unknown datacentre everything has been said by its own line.
        if node.get("reasons") and node.get("state") != "UNKNOWN":
            reasons = "; ".join(node["reasons"])
            say(printable(f"{node.get('datacenter')} {node.get('node')}: {reasons}"))
    stopped, failing = sum(map(_stopped, nodes)), sum(map(_failing, nodes))
    if stopped or failing:
        say(
            f"ill: {stopped} subscriptions stopped, {failing} failing, "
            "see 'hermes subscription list --unhealthy'"
        )


def _stopped(node: dict[str, Any]) -> int:
    return int(node.get("stoppedSubscriptions", 0))


def _failing(node: dict[str, Any]) -> int:
    return int(node.get("failingSubscriptions", 0))


def _row(node: dict[str, Any]) -> list[str]:
    return [
        str(node.get("datacenter", "")),
        str(node.get("node", "")),
        str(node.get("state", "")),
        f"{node.get('ageMs', 0) / 1_000:.1f} s",
        f"{node.get('publishedRate', 0):.1f}",
        f"{node.get('deliveredRate', 0):.1f}",
        str(node.get("subscriptions", "")),
        str(_stopped(node) + _failing(node)),
        ", ".join(node.get("roles", [])),
    ]
