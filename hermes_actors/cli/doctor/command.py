"""`hermes doctor`: the checks of one node, for whoever is on call."""

import os
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hermes_actors import config as configuration
from hermes_actors.cli.command_line.failures import EXIT_FAILED, UsageWrong
from hermes_actors.cli.command_line.options import JsonOption, Output, OutputOption, examples
from hermes_actors.cli.command_line.plain import PlainCommand
from hermes_actors.cli.doctor.checkup import Checkup, broken_configuration
from hermes_actors.cli.doctor.diagnosis import Diagnosis, Grade, fine
from hermes_actors.cli.output.render import printable, write_json
from hermes_actors.config import Config
from hermes_actors.errors import ConfigError
from hermes_actors.runtime import guest
from hermes_actors.runtime.clock import SystemClock

app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich")

_COLOURS = {Grade.OK: "green", Grade.WARN: "yellow", Grade.FAIL: "bold red"}
_INDENT = 16


@app.command(
    cls=PlainCommand,
    epilog=examples(
        "hermes doctor node.toml",
        "HERMES_NODE=dc1-1 hermes doctor           (beside 'hermes dev')",
        "hermes doctor node.toml --json | jq '.diagnoses[] | select(.grade == \"FAIL\")'",
    ),
)
def doctor(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="CONFIG",
            help="The node's TOML file. Without it: the defaults and HERMES_… variables.",
        ),
    ] = None,
    option: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="The same, as for 'hermes node'."),
    ] = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout-s", min=0.5, max=600, metavar="S", help="For each check.")
    ] = 5.0,
    output: OutputOption = Output.TABLE,
    json: JsonOption = False,
) -> None:
    """Say what is wrong with a node and what it needs, and the way out. Changes nothing.

    Run it where the node runs, beside it or in its place, as its user.
    It looks at configuration, ports, files, disks, log, spool and Kafka,
    at clocks, the schema registry and the collector, all side by side.
    Exit code 0: nothing has failed, 1: something has.
    """
    if file and option:
        raise UsageWrong("the configuration is named twice: leave out CONFIG or --config")
    loaded: Config | None = None
    found: list[Diagnosis] = []
    try:
        loaded = configuration.load(file or option, os.environ)
    except ConfigError as error:
        found.append(broken_configuration(error))
    if loaded is not None:
        checkup = Checkup(loaded, os.environ, SystemClock(), timeout_s=timeout_s)
        source = str(file or option or "defaults and HERMES_… variables")
        about = f"{source}: node {loaded.node} of {loaded.dc}, {', '.join(loaded.roles)}"
        found += [fine("config", about, "valid"), *guest.run(checkup.run)]
    if json or output is Output.JSON:
        write_json(_as_json(loaded, found))
    else:
        _show(found)
    if worst_of(found) is Grade.FAIL:
        raise typer.Exit(EXIT_FAILED)


def worst_of(found: Sequence[Diagnosis]) -> Grade:
    """The grade of all together."""
    return max((each.grade for each in found), key=list(Grade).index, default=Grade.OK)


def _as_json(config: Config | None, found: Sequence[Diagnosis]) -> bytes:
    named = {} if config is None else {"dc": config.dc, "node": config.node}
    return msgspec.json.encode({**named, "grade": worst_of(found), "diagnoses": found})


def _show(found: Sequence[Diagnosis]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(file=sys.stdout, highlight=False)
    # In a pipe a line is whole, so that it can be searched.
    room = max(40, console.width - _INDENT) if console.is_terminal else sys.maxsize
    for each in found:
        head = Text(f"{each.grade:<6}", _COLOURS[each.grade])
        head.append(f"{each.check:<{_INDENT - 6}}")
        lines = [f"{each.about}: {each.seen}", f"-> {each.way_out}" if each.way_out else ""]
        for line in filter(None, lines):
            for part in textwrap.wrap(printable(line), room, break_on_hyphens=False):
                console.print(Text.assemble(head, part), soft_wrap=True)
                head = Text(" " * _INDENT)
    counts = ", ".join(
        f"{count} {grade}"
        for grade in reversed(Grade)
        if (count := sum(each.grade is grade for each in found))
    )
    console.print(Text(counts, "bold"))
