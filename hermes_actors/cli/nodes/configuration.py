"""`hermes config …`: checks and shows a node's configuration, read as the node would read it."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from hermes_actors import config
from hermes_actors.cli.command_line.failures import EXIT_FAILED
from hermes_actors.cli.command_line.options import examples
from hermes_actors.cli.command_line.plain import PlainCommand, command_group
from hermes_actors.cli.doctor.findings import FAIL
from hermes_actors.cli.doctor.machine import look_at_machine
from hermes_actors.config import Config
from hermes_actors.config.checks_security import exposures
from hermes_actors.runtime.clock import SystemClock

app = command_group("A node's configuration.")

FileArgument = Annotated[
    Path | None,
    typer.Argument(metavar="FILE", help="A TOML file."),
]


@app.command(
    cls=PlainCommand,
    epilog=examples(
        "hermes config check node.toml",
        "hermes config check node.toml --no-files",
        "HERMES_NODE=consumers-dc1-1 hermes config check deploy/nodes/dc1.toml",
    ),
)
def check(
    file: FileArgument = None,
    files: Annotated[
        bool,
        typer.Option("--files/--no-files", help="Also check the files and folders that it names."),
    ] = True,
) -> None:
    """Check a file, overridden by HERMES_… variables, and the files that it names."""
    loaded = config.load(file, os.environ)
    for exposure in exposures(loaded):
        print(f"hermes: warning: {exposure}", file=sys.stderr)
    found = look_at_machine(loaded, SystemClock().now_ms()) if files else ()
    problems = [each for each in found if each.grade is FAIL]
    for each in problems:
        print(f"hermes: {each.about}: {each.seen}; {each.way_out}", file=sys.stderr)
    if problems:
        raise typer.Exit(EXIT_FAILED)
    print("ok")


@app.command(
    cls=PlainCommand,
    epilog=examples("hermes config show", "HERMES_FRONTEND_PORT=8081 hermes config show node.toml"),
)
def show(file: FileArgument = None) -> None:
    """Show the value of every field that a node would use, as TOML."""
    for key, value in fields(config.load(file, os.environ)).items():
        print(f"{key} = {value}")


def fields(loaded: Config) -> dict[str, str]:
    """Return TOML with dotted keys; TOML's strings, numbers, booleans and lists look as in JSON."""
    return dict(_fields(msgspec.to_builtins(loaded), ""))


def _fields(section: dict[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in section.items():
        if isinstance(value, dict):
            yield from _fields(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", json.dumps(value, ensure_ascii=False)
