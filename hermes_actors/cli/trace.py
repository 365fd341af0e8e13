"""`hermes trace`: the history of one message, in all datacentres."""

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from hermes_actors.cli.connection.asking import management, management_command
from hermes_actors.cli.connection.management import quoted
from hermes_actors.cli.dlq import cause
from hermes_actors.cli.output.render import (
    Columns,
    Fields,
    fields_of,
    parsed_object,
    say,
    show_answer,
    show_table,
)

app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich")

NOT_FOUND, WITH_GAPS = 3, 4
"""Exit codes: nothing is known about the message, or its history may be incomplete."""


@management_command(
    app, "hermes trace 2f8a0c4e-8f0b-4d5e-9f59-6c1d2f3a4b5c", "hermes trace ID -o json"
)
def trace(
    message_id: Annotated[str, typer.Argument(metavar="ID", help="The message's id.")],
) -> None:
    """Show the history of a message: exit code 0 found, 3 not found, 4 perhaps incomplete.

    For a message without tracking: whether it is a dead letter or in a spool.
    """
    content = management().get(f"/tracking/{quoted(message_id)}")
    found = parsed_object(content)
    show_answer(content, _show)
    if fields_of(found, "gaps") or found.get("troubles"):
        raise typer.Exit(WITH_GAPS)
    if not any(fields_of(found, each) for each in ("events", "deadLetters", "spooled")):
        raise typer.Exit(NOT_FOUND)


def _show(found: Fields) -> None:
    events = fields_of(found, "events")
    first_ms = int(events[0].get("timestamp", 0)) if events else 0
    columns: Columns = {
        "At": lambda event: _time(event.get("timestamp")),
        "After": lambda event: f"+{int(event.get('timestamp', 0)) - first_ms} ms",
        "Datacentre": "datacenter",
        "Node": "node",
        "Event": "event",
        "Where": _where,
        "What": _what,
    }
    if not _show_elsewhere(found) or events:
        places = ", ".join(["the tracking events", *found.get("searched", ())])
        nothing = (
            f"message {found.get('messageId')} was not found; searched: {places}. Is its "
            "topic tracked? 'hermes topic update TOPIC trackingEnabled=true' turns it on for new "
            "messages"
        )
        show_table(columns, events, nothing)
    for each in fields_of(found, "ended"):
        name = f"{each.get('topicName')}${each.get('subscription')}"
        epoch = f" (epoch {each.get('epoch')})" if each.get("epoch") else ""
        say(f"{name}{epoch}: {each.get('event')} in {each.get('datacenter')}")
    if left_out := found.get("leftOut"):
        say(f"{left_out} events between the first and the last are not shown")
    for gap in fields_of(found, "gaps"):
        say(
            f"{gap.get('datacenter')}: events of node {gap.get('node')} from "
            f"{_time(gap.get('since'))} to {_time(gap.get('until'))} are missing: "
            f"{gap.get('missingBatches')} batches lost, {gap.get('dropped')} events dropped"
        )
    for trouble in found.get("troubles", ()):
        say(f"incomplete: {trouble}")


def _show_elsewhere(found: Fields) -> bool:
    """Show where a message is now. False if it is not found."""
    letters, spooled = fields_of(found, "deadLetters"), fields_of(found, "spooled")
    for each in letters:
        name = f"{each.get('topicName')} {each.get('subscription')}"
        say(
            f"{name}: given up at {each.get('discardedAt')} in {each.get('cluster')}, "
            f"{cause(each)}; see 'hermes dlq show {name} {each.get('id')}'"
        )
    for each in spooled:
        say(
            f"{each.get('topicName')}: has been waiting since {each.get('spooledAt')} in the "
            "spool of node "
            f"{each.get('node')} of {each.get('datacenter')} until a log accepts it"
        )
    return bool(letters or spooled)


def _where(event: Fields) -> str:
    where = str(event.get("topicName", ""))
    if event.get("subscription"):
        where += f"${event['subscription']}"
    if event.get("offset") is not None:
        where += f" {event.get('partition', '?')}/{event['offset']}"
    return where


def _what(event: Fields) -> list[str]:
    named = ("attempt", "status", "via", "reason")
    return [f"{name} {event[name]}" for name in named if event.get(name)]


def _time(at_ms: Any) -> str:
    if not at_ms:
        return "its start"
    return datetime.fromtimestamp(int(at_ms) / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
