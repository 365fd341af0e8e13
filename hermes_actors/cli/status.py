"""`hermes status`: all nodes of all datacentres, and how they fare."""

import json
from typing import Annotated, Any

import typer

from hermes_actors.cli.command_line.failures import CommandFailed, UsageWrong
from hermes_actors.cli.command_line.options import (
    Output,
    OutputOption,
)
from hermes_actors.cli.connection.asking import management_command
from hermes_actors.cli.connection.management import ManagementClient
from hermes_actors.cli.output.render import (
    counted,
    fields_of,
    parsed_object,
    printable,
    say,
    say_unknown,
    say_wrapped,
    show_answer,
    show_rows,
)
from hermes_actors.cli.output.watching import WatchOption, watched

app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich")

_COLUMNS = ("DC", "Node", "State", "Age", "Publ./s", "Deliv./s", "Subscr.", "Ill", "Roles")


@management_command(
    app, "hermes status", "hermes status --watch", "hermes status --check || page me"
)
def status(
    client: ManagementClient,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Say whether all is well: exit code 0 yes, 1 no, 2 cannot tell."
        ),
    ] = False,
    watch: WatchOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show all nodes of all datacentres, as the node that is asked has heard of them."""
    if check and watch:
        raise UsageWrong("--check is done once: leave out --watch")
    if check:
        raise typer.Exit(_checked(client, output))
    watched(lambda: show_answer(client.get("/status/nodes"), output, _show_nodes), watch)


_WELL, _UNHEALTHY, _UNKNOWN = 0, 1, 2
_VERDICTS = ("HEALTHY", "UNHEALTHY", "UNKNOWN")


def _checked(client: ManagementClient, output: Output) -> int:
    """Say what is not well; the exit code. What is known to be ill outweighs the unknown."""
    try:
        found = parsed_object(client.get("/status/nodes"))
        ill = parsed_object(client.get("/status/subscriptions", {"unhealthy": "true"}))
        code, reasons = judged(found, ill)
    except CommandFailed as failure:
        code, reasons = _UNKNOWN, [failure.message]
    if output is Output.JSON:
        say(json.dumps({"status": _VERDICTS[code], "reasons": reasons}, ensure_ascii=False))
        return code
    say(_VERDICTS[code])
    for reason in reasons:
        say_wrapped(reason)
    return code


def judged(found: dict[str, Any], ill: dict[str, Any]) -> tuple[int, list[str]]:
    """The exit code and what speaks against 0, from the nodes and the unhealthy subscriptions."""
    unknown = [
        f"{dc.get('datacenter')}: {dc.get('reason')}"
        for dc in fields_of(found, "datacenters")
        if not dc.get("isKnown")
    ]
    nodes = fields_of(found, "nodes")
    if not nodes:
        unknown.append("no node is known")
    against = [
        f"{node.get('datacenter')} {node.get('node')} is {node.get('state')}: "
        + "; ".join(map(str, node.get("reasons", [])))
        for node in nodes
        if node.get("state") in ("GONE", "NOT_READY")
    ]
    against += [
        f"{each.get('datacenter')}: {each.get('text')}" for each in fields_of(found, "notices")
    ]
    for each in fields_of(ill, "subscriptions"):
        problems = "; ".join(str(one.get("description")) for one in fields_of(each, "problems"))
        against.append(f"{each.get('topicName')} {each.get('name')}: {problems}")
    code = _UNHEALTHY if against else _UNKNOWN if unknown else _WELL
    return code, [*against, *unknown]


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
    if node.get("state") == "UNKNOWN":
        # Its datacentre tells nothing: what it told last is true no more.
        figures = ["?"] * len(figures)
    return [
        str(node.get("datacenter", "")),
        str(node.get("node", "")),
        str(node.get("state", "")),
        f"{node.get('ageMs', 0) / 1_000:.1f} s",
        *(["-"] * len(figures) if is_over else figures),
        ", ".join(node.get("roles", [])),
    ]
