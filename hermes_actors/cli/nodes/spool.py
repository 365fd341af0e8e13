"""`hermes spool …`: shows the messages in a node's spool, and sends them manually."""

import os
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hermes_actors import config as configuration
from hermes_actors.cli.command_line.failures import EXIT_FAILED, CommandFailed
from hermes_actors.cli.command_line.options import (
    AcceptDamageOption,
    Output,
    OutputOption,
    examples,
)
from hermes_actors.cli.command_line.plain import PlainCommand, command_group
from hermes_actors.cli.output.render import counted, say, show_rows, span, write_json
from hermes_actors.config import Config
from hermes_actors.fallback.spool.disk import LOCK_NAME
from hermes_actors.fallback.spool.opening import spool_folder
from hermes_actors.fallback.spool.reading import SpoolContent, read_spool
from hermes_actors.fallback.spool.store import SET_ASIDE
from hermes_actors.runtime.clock import SystemClock

app = command_group("Messages that a node keeps on disk until a log accepts them.")

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The node's, as for 'hermes node'. Without it: the defaults and HERMES_… variables.",
    ),
]

_COLUMNS = ("Topic", "Messages", "Bytes", "Oldest")


@app.command(
    cls=PlainCommand,
    epilog=examples("hermes spool status --config node.toml", "hermes spool status --output json"),
)
def status(config: ConfigOption = None, output: OutputOption = Output.TABLE) -> None:
    """Show the messages in a node's spool, whether the node runs or not. Changes nothing.

    Exit code 1 if messages are damaged, or only a newer version can send them.
    """
    content = read_spool(_existing_folder(configuration.load(config, os.environ)))
    if output is Output.JSON:
        write_json(msgspec.json.encode(content))
    else:
        _show(content, SystemClock().now_ms())
    if content.damaged or content.unknown:
        raise typer.Exit(EXIT_FAILED)


@app.command(
    cls=PlainCommand,
    epilog=examples(
        "hermes spool drain --config node.toml",
        "hermes spool drain --config node.toml --timeout-s 600",
        "hermes spool drain --wait",
    ),
)
def drain(
    config: ConfigOption = None,
    timeout_s: Annotated[
        float,
        typer.Option(
            "--timeout-s", min=0.1, metavar="S", help="Give up after this, with exit code 1."
        ),
    ] = 300.0,
    stops: Annotated[
        bool,
        typer.Option(
            "--wait",
            help="The node is about to stop, as in preStop: it reports not ready from now on.",
        ),
    ] = False,
    accepts_damage: AcceptDamageOption = False,
) -> None:
    """Wait until a node's spool is empty; if the node does not run, this command sends.

    Messages that cannot be sent any more (topic deleted, too old) are set aside and counted.
    """
    from hermes_actors.cli.nodes.spool_drain import DrainPlan, drain_spool

    read = configuration.load(config, os.environ)
    if not read.spool.enabled:
        say("the node has no spool: spool.enabled is false")
        return
    _existing_folder(read)
    drain_spool(DrainPlan(read, timeout_s, stops, accepts_damage))


def _existing_folder(config: Config) -> Path:
    """Return the folder of the node's spool. Raises CommandFailed if it does not exist."""
    folder = spool_folder(config)
    if folder.is_dir():
        return folder
    others = sorted(each.parent.name for each in folder.parent.glob(f"*/{LOCK_NAME}"))
    raise CommandFailed(
        f"there is no spool in {folder.absolute()} (there are: {', '.join(others) or 'none'}): "
        f"name the node with --config or HERMES_DC and HERMES_NODE (this is node {config.node} of "
        f"{config.dc}), and run this in the directory where the node runs or set spool.directory "
        "(HERMES_SPOOL_DIRECTORY)"
    )


def _show(content: SpoolContent, now_ms: int) -> None:
    rows = [
        [
            each.topic,
            str(each.entries),
            str(each.size_bytes),
            span((now_ms - each.oldest_ms) / 1_000),
        ]
        for each in content.topics
    ]
    show_rows(_COLUMNS, rows, "the spool is empty")
    runs = f"in use by process {content.pid}" if content.pid else "its node does not run"
    say(f"{content.folder}: {content.disk_bytes} bytes on the disk, {runs}")
    for reason, count in content.set_aside.items():
        say(f"set aside: {count} {reason}; see {content.folder}/{SET_ASIDE}")
    if content.damaged:
        say(f"damaged: {counted(content.damaged, 'place')}; at least one message is lost at each")
    if content.unknown:
        say(f"kept: {counted(content.unknown, 'message')} of a newer version, which must send them")
