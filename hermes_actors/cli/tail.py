"""`hermes tail`: prints a topic's messages in one DC, and follows new ones."""

import json
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from hermes_actors.cli.administration.arguments import TopicArgument
from hermes_actors.cli.command_line.bodies import TIME_HELP, time_to_send
from hermes_actors.cli.command_line.failures import CommandFailed, UsageWrong
from hermes_actors.cli.command_line.options import wants_json
from hermes_actors.cli.connection.asking import management, management_command
from hermes_actors.cli.connection.management import quoted
from hermes_actors.cli.output.render import printable
from hermes_actors.model.moments import iso_ms

app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich")


@management_command(
    app,
    "hermes tail shop.orders",
    "hermes tail shop.orders --from beginning --no-follow",
    "hermes tail shop.orders -n 10",
    "hermes tail shop.orders --from 15m --limit 10 --format '{offset} {key} {body}'",
    "hermes tail shop.orders --output json | jq .body",
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
        bool | None,
        typer.Option(
            "--follow/--no-follow",
            "-f/-F",
            help="Wait for new messages.",
            show_default="follow; with --last: no-follow",
        ),
    ] = None,
    last: Annotated[
        int | None,
        typer.Option(
            "--last", "-n", min=1, max=1_000, metavar="N", help="Only the last N messages."
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, metavar="N", help="Stop after N messages.")
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="TEXT",
            help="Format of each message: {time} {timestamp} {partition} {offset} {id} {key} "
            "{headers} {body}, \\t and \\n.",
        ),
    ] = None,
) -> None:
    """Print a topic's messages in the DC of this management API. Ctrl-C ends it."""
    if last is not None and start is not None:
        raise UsageWrong("--last says where to start: leave out --from")
    if template is not None and wants_json():
        raise UsageWrong("--format cannot be combined with --output json")
    shown = row if template is None else formatter(template)
    follow = last is None if follow is None else follow
    params = {} if last is not None else {"from": place(start, follow)}
    params["follow"] = "true" if follow else "false"
    if last is not None:
        params["last"] = str(last)
    if limit is not None:
        params["limit"] = str(limit)
    left = limit
    for line in management().stream_lines(f"/topics/{quoted(topic)}/messages", params):
        # A server may send empty lines to keep the connection open.
        if not line.strip():
            continue
        sys.stdout.write((line if wants_json() else shown(line)) + "\n")
        sys.stdout.flush()
        if left is not None:
            left -= 1
            if left == 0:
                return
    if follow:
        raise CommandFailed(
            "the server ended the stream: it is stopping, its log is unavailable, or the topic "
            "was deleted; run the command again with --from and the time of the last row"
        )


def place(start: str | None, follow: bool) -> str:
    """Return the checked start position. Raises UsageWrong."""
    if start is None:
        return "end" if follow else "beginning"
    if start in ("beginning", "end"):
        return start
    return time_to_send("--from", start, "beginning, end, ")


_FIELDS = ("time", "timestamp", "partition", "offset", "id", "key", "headers", "body")


def formatter(template: str) -> Callable[[str], str]:
    """Return a function that formats a line of the server; missing fields are `-`. Raises
    UsageWrong.
    """
    template = template.replace("\\t", "\t").replace("\\n", "\n")
    try:
        template.format_map(dict.fromkeys(_FIELDS, ""))
    except (ValueError, LookupError, AttributeError) as error:
        known = ", ".join(f"{{{each}}}" for each in _FIELDS)
        raise UsageWrong(
            f"--format '{template}': {error!r}; use {known}, and {{{{ for a brace"
        ) from error

    def shown(line: str) -> str:
        message, when = _message(line)
        values = {
            **{name: message.get(name) for name in ("timestamp", "partition", "offset", "id")},
            "time": when,
            "key": _key(message),
            "headers": json.dumps(message.get("headers") or {}, ensure_ascii=False),
            "body": _body(message),
        }
        return template.format_map(
            {name: "-" if each is None else printable(str(each)) for name, each in values.items()}
        )

    return shown


def _message(line: str) -> tuple[dict[str, Any], str]:
    """Return the message in a line of the server, and its time. Raises CommandFailed."""
    try:
        message = json.loads(line)
        when = iso_ms(message["timestamp"])
        message["partition"], message["offset"]
    except (ValueError, KeyError, TypeError) as error:
        raise CommandFailed(
            f"the server sent a line that is not a message: {printable(line[:200])}"
        ) from error
    return message, when


def row(line: str) -> str:
    """Format a message on one line: time, partition:offset, id, key, body."""
    message, when = _message(line)
    parts = [when, f"{message['partition']}:{message['offset']}"]
    parts.append(str(message.get("id") or "-"))
    if (key := _key(message)) is not None:
        parts.append(f"key={key}")
    if "error" in message:
        parts.append(f"[{message['error']}]")
    parts.append(_body(message))
    return printable(" ".join(parts))


def _key(message: dict[str, Any]) -> str | None:
    if "keyBase64" in message:
        return f"base64:{message['keyBase64']}"
    return message.get("key")


def _body(message: dict[str, Any]) -> str:
    if "bodyBase64" in message:
        return f"base64:{message['bodyBase64']}"
    body = message.get("body")
    return body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
