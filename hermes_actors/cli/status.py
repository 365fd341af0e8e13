"""`hermes status`: all nodes of all datacentres, and how they fare."""

from typing import Any

import typer

from hermes_actors.cli.command_line.options import (
    MANAGEMENT_URL_DEFAULT,
    ManagementOption,
    Output,
    OutputOption,
    examples,
)
from hermes_actors.cli.command_line.plain import PlainCommand
from hermes_actors.cli.connection.management import ManagementClient
from hermes_actors.cli.output.render import (
    counted,
    fields_of,
    printable,
    say,
    say_unknown,
    show_answer,
    show_rows,
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
        show_answer(client.get("/status/nodes"), output, _show_nodes)


def _show_nodes(found: dict[str, Any]) -> None:
    nodes = fields_of(found, "nodes")
    rows = [_row(node) for node in nodes]
    show_rows(_COLUMNS, rows, "no node is known", optional=("Roles",))
    # Sentences do not fit into a column beside so many others.
    say_unknown(found)
    for node in nodes:
        # Of an unknown datacentre everything has been said by its own line.
        if node.get("reasons") and node.get("state") != "UNKNOWN":
            reasons = "; ".join(node["reasons"])
            say(printable(f"{node.get('datacenter')} {node.get('node')}: {reasons}"))
        if node.get("state") in ("READY", "NOT_READY"):
            for notice in node.get("notices", ()):
                say(printable(f"{node.get('datacenter')} {node.get('node')}: {notice}"))
    for notice in fields_of(found, "notices"):
        say(printable(f"{notice.get('datacenter')}: {notice.get('text')}"))
    stopped, failing = _stopped(found), _failing(found)
    if stopped or failing:
        say(
            f"ill: {counted(stopped, 'subscription')} stopped, {failing} failing, "
            "see 'hermes subscription list --unhealthy'"
        )


def _stopped(found: dict[str, Any]) -> int:
    return int(found.get("stoppedSubscriptions", 0))


def _failing(found: dict[str, Any]) -> int:
    return int(found.get("failingSubscriptions", 0))


def _row(node: dict[str, Any]) -> list[str]:
    figures = [
        f"{node.get('publishedRate', 0):.1f}",
        f"{node.get('deliveredRate', 0):.1f}",
        str(node.get("subscriptions", "")),
        str(_stopped(node) + _failing(node)),
    ]
    # Of who is not there any more the last ones tell nothing.
    is_over = node.get("state") in ("GONE", "LEFT")
    return [
        str(node.get("datacenter", "")),
        str(node.get("node", "")),
        str(node.get("state", "")),
        f"{node.get('ageMs', 0) / 1_000:.1f} s",
        *(["-"] * len(figures) if is_over else figures),
        ", ".join(node.get("roles", [])),
    ]
