"""`hermes trace`: the life of one message, with its times, across datacentres."""

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from hermes_actors.cli.command_line.options import Output, OutputOption
from hermes_actors.cli.connection.asking import management_command
from hermes_actors.cli.connection.management import ManagementClient, quoted
from hermes_actors.cli.output.render import (
    fields_of,
    parsed_object,
    printable,
    say,
    say_wrapped,
    show_answer,
    show_rows,
)

app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich")

NOT_FOUND, WITH_GAPS = 3, 4
"""Exit codes beside 0: nothing is known of the message; or what is known may not be all."""

_COLUMNS = ("At", "After", "Datacentre", "Node", "Event", "Where", "What")


@management_command(
    app, "hermes trace 2f8a0c4e-8f0b-4d5e-9f59-6c1d2f3a4b5c", "hermes trace ID -o json"
)
def trace(
    client: ManagementClient,
    message_id: Annotated[str, typer.Argument(metavar="ID", help="The message's id.")],
    output: OutputOption = Output.TABLE,
) -> None:
    """Show what became of a message: exit code 0 found, 3 not found, 4 events may be missing."""
    content = client.get(f"/tracking/{quoted(message_id)}")
    found = parsed_object(content)
    show_answer(content, output, _show)
    if fields_of(found, "gaps") or found.get("troubles"):
        raise typer.Exit(WITH_GAPS)
    if not fields_of(found, "events"):
        raise typer.Exit(NOT_FOUND)


def _show(found: dict[str, Any]) -> None:
    events = fields_of(found, "events")
    rows = [_row(event, events[0]) for event in events]
    nothing = (
        f"nothing is known of message {found.get('messageId')}: is its topic tracked? "
        "'hermes topic update TOPIC trackingEnabled=true' has the next ones tracked"
    )
    show_rows(_COLUMNS, rows, printable(nothing), optional=("Node",))
    for each in fields_of(found, "ended"):
        name = f"{each.get('topicName')}${each.get('subscription')}"
        epoch = f" (epoch {each.get('epoch')})" if each.get("epoch") else ""
        say(printable(f"{name}{epoch}: {each.get('event')} in {each.get('datacenter')}"))
    if left_out := found.get("leftOut"):
        say(f"{left_out} events between the first and the last are not shown")
    for gap in fields_of(found, "gaps"):
        say_wrapped(
            f"{gap.get('datacenter')}: events of node {gap.get('node')} from "
            f"{_time(gap.get('since'))} to {_time(gap.get('until'))} are missing: "
            f"{gap.get('missingBatches')} batches lost, {gap.get('dropped')} events dropped"
        )
    for trouble in found.get("troubles", ()):
        say_wrapped(f"not all is known: {trouble}")


def _row(event: dict[str, Any], first: dict[str, Any]) -> list[str]:
    at_ms = int(event.get("timestamp", 0))
    where = str(event.get("topicName", ""))
    if event.get("subscription"):
        where += f"${event['subscription']}"
    if event.get("offset") is not None:
        where += f" {event.get('partition', '?')}/{event['offset']}"
    named = ("attempt", "status", "via", "reason")
    what = ", ".join(f"{name} {event[name]}" for name in named if event.get(name))
    return [
        _time(at_ms),
        f"+{at_ms - int(first.get('timestamp', 0))} ms",
        str(event.get("datacenter", "")),
        str(event.get("node", "")),
        str(event.get("event", "")),
        where,
        what,
    ]


def _time(at_ms: Any) -> str:
    if not at_ms:
        return "its start"
    return datetime.fromtimestamp(int(at_ms) / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
