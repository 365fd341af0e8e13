"""`hermes sink`: runs a subscriber that prints and counts the pushes."""

import json
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import trio
import typer

from hermes_actors.cli.command_line.failures import CommandFailed
from hermes_actors.cli.command_line.options import examples
from hermes_actors.cli.command_line.plain import PlainCommand
from hermes_actors.cli.output.render import printable
from hermes_actors.cli.sink.server import ReceivedPush, Sink, SinkCounts, SinkRules
from hermes_actors.errors import StartupError
from hermes_actors.publisher.edges.endpoint import EndpointServer
from hermes_actors.runtime import guest
from hermes_actors.runtime.clock import SystemClock
from hermes_actors.runtime.signals import stop_on_signal

_DRAIN_S = 5.0
_BODY_SHOWN_MAX = 200


app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich")


@app.command(
    cls=PlainCommand,
    epilog=examples(
        "hermes sink",
        "hermes sink --port 9001 --fail-first 10% --write taken.ndjson",
        "hermes sink --port 0 --json --quiet",
    ),
)
def sink(
    port: Annotated[
        int, typer.Option(min=0, max=65_535, metavar="PORT", help="0: any free port.")
    ] = 9000,
    host: Annotated[str, typer.Option(metavar="ADDRESS")] = "127.0.0.1",
    write: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a line of JSON for each delivery, with its body."),
    ] = None,
    delay_ms: Annotated[
        int, typer.Option("--delay-ms", min=0, metavar="MS", help="Wait before each answer.")
    ] = 0,
    status: Annotated[
        int, typer.Option(min=200, max=599, metavar="STATUS", help="Status of the answers.")
    ] = 200,
    fail_first: Annotated[
        str,
        typer.Option(
            "--fail-first",
            metavar="PERCENT",
            help="Answer 500 to the first attempt of this share of messages, chosen by their id.",
        ),
    ] = "0%",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not print deliveries.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON lines, the first with the URL.")
    ] = False,
) -> None:
    """Run a subscriber: accept pushes at any path, print and count them. Ctrl-C ends it."""
    rules = SinkRules(status=status, delay_ms=delay_ms, fail_first_percent=percent(fail_first))
    show = None if quiet else (_show_json if as_json else _show_text)
    try:
        journal = None if write is None else write.open("wb", buffering=0)
    except OSError as error:
        raise CommandFailed(
            f"--write {write}: cannot be written: {error.strerror}; name another file"
        ) from error
    endpoint = Sink(rules, SystemClock().now_ms, journal, show)
    try:
        server = EndpointServer(endpoint.respond, host, port)
    except StartupError as error:
        raise CommandFailed(
            f"{error.message}; use --port 0 for any free port, or another --host"
        ) from error
    guest.run(_run, endpoint, server, as_json)


def percent(text: str) -> float:
    """Parse a share such as `10` or `10%`. Raises typer.BadParameter."""
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value <= 100:
        raise typer.BadParameter(
            f"'{text}': expected a share like 10%, from 0% to 100%", param_hint="--fail-first"
        )
    return value


async def _run(endpoint: Sink, server: EndpointServer, as_json: bool) -> None:
    """Serve until SIGTERM or Ctrl-C, answer open requests, then print the counts."""
    stopped = trio.Event()
    async with trio.open_nursery() as nursery:
        await nursery.start(stop_on_signal, stopped.set)
        async with server.serving(_DRAIN_S):
            _ready(server.url, as_json)
            await stopped.wait()
        nursery.cancel_scope.cancel()
    _summary(endpoint.counts, as_json)


def _ready(url: str, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"ready": True, "url": url}), flush=True)
    else:
        print(f"accepting pushes at {url} (Ctrl-C stops it)", file=sys.stderr, flush=True)


def _show_text(push: ReceivedPush) -> None:
    body = push.body if isinstance(push.body, str) else repr(push.body_base64)
    cut = "…" if len(body) > _BODY_SHOWN_MAX else ""
    retry = f" retry {push.retry_count}" if push.retry_count else ""
    line = f"{push.status} {push.path} {push.message_id or '-'}{retry} {body[:_BODY_SHOWN_MAX]}"
    print(printable(line) + cut, flush=True)


def _show_json(delivery: ReceivedPush) -> None:
    sys.stdout.write(delivery.line().decode())
    sys.stdout.flush()


def _summary(counts: SinkCounts, as_json: bool) -> None:
    fields = msgspec.to_builtins(counts)
    if as_json:
        print(json.dumps({"summary": fields}), flush=True)
    else:
        print(", ".join(f"{name} {value}" for name, value in fields.items()), flush=True)
