"""`hermes tail`: prints what lies in a topic of one DC, and what comes."""

import json
import sys
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from hermes_actors.cli.command_line.failures import CommandFailed
from hermes_actors.cli.command_line.options import (
    MANAGEMENT_URL_DEFAULT,
    ManagementOption,
    Output,
    OutputOption,
    TopicArgument,
    examples,
)
from hermes_actors.cli.command_line.plain import PlainCommand
from hermes_actors.cli.command_line.times import TIME_HELP, time_to_send
from hermes_actors.cli.connection.management import ManagementClient, quoted
from hermes_actors.cli.output.render import printable

app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich")


@app.command(
    cls=PlainCommand,
    epilog=examples(
        "hermes tail shop.orders",
        "hermes tail shop.orders --from beginning --no-follow",
        "hermes tail shop.orders --from 15m --limit 10",
        "hermes tail shop.orders --output json | jq .body",
    ),
)
def tail(
    topic: TopicArgument,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PLACE",
            help=f"beginning, end, or a time: {TIME_HELP}.",
            show_default="end; without --follow: beginning",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", "-f/-F", help="Wait for what comes.")
    ] = True,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, metavar="N", help="End after N messages.")
    ] = None,
    management: ManagementOption = MANAGEMENT_URL_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print a topic's messages, as the DC of this management API holds them. Ctrl-C ends it."""
    params = {
        "from": place(start, follow),
        "follow": "true" if follow else "false",
    }
    if limit is not None:
        params["limit"] = str(limit)
    left = limit
    with ManagementClient(management) as client:
        for line in client.stream_lines(f"/topics/{quoted(topic)}/messages", params):
            # A server may send empty lines to keep the connection open.
            if not line.strip():
                continue
            sys.stdout.write((line if output is Output.JSON else row(line)) + "\n")
            sys.stdout.flush()
            if left is not None:
                left -= 1
                if left == 0:
                    return
    if follow:
        raise CommandFailed(
            "the server ended the stream: it is stopping, its log is away, or the topic was "
            "deleted; run the command again with --from and the time of the last row"
        )


def place(start: str | None, follow: bool) -> str:
    """The checked place to start from. Raises UsageWrong."""
    if start is None:
        return "end" if follow else "beginning"
    if start in ("beginning", "end"):
        return start
    return time_to_send("--from", start, "beginning, end, ")


def row(line: str) -> str:
    """One message on one line: time, partition:offset, id, key, body."""
    try:
        message = json.loads(line)
        when = datetime.fromtimestamp(message["timestamp"] / 1_000, UTC)
        where = f"{message['partition']}:{message['offset']}"
    except (ValueError, KeyError, TypeError) as error:
        raise CommandFailed(
            f"the server sent a line that is no message: {printable(line[:200])}"
        ) from error
    parts = [when.isoformat(timespec="milliseconds").replace("+00:00", "Z"), where]
    parts.append(str(message.get("id") or "-"))
    if "keyBase64" in message:
        parts.append(f"key=base64:{message['keyBase64']}")
    elif message.get("key") is not None:
        parts.append(f"key={message['key']}")
    if "error" in message:
        parts.append(f"[{message['error']}]")
    parts.append(_body(message))
    return printable(" ".join(parts))


def _body(message: dict[str, Any]) -> str:
    if "bodyBase64" in message:
        return f"base64:{message['bodyBase64']}"
    body = message.get("body")
    return body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
