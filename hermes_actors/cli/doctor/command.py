"""`hermes doctor`: runs all checks of one node concurrently, each with a time limit."""

import logging
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import trio
import typer

from hermes_actors import config as configuration
from hermes_actors.cli.command_line.failures import EXIT_FAILED
from hermes_actors.cli.command_line.options import JsonOption, Output, OutputOption, examples
from hermes_actors.cli.command_line.plain import PlainCommand
from hermes_actors.cli.doctor.findings import FAIL, OK, WARN, Finding, Grade, finding
from hermes_actors.cli.doctor.kafka import look_at_kafka
from hermes_actors.cli.doctor.machine import look_at_machine
from hermes_actors.cli.doctor.servers import look_at_collector, look_at_node, look_at_registry
from hermes_actors.cli.output.render import printable, write_json
from hermes_actors.config import Config
from hermes_actors.config.checks_security import exposures
from hermes_actors.errors import ConfigError, HermesError
from hermes_actors.runtime import guest
from hermes_actors.runtime.clock import SystemClock
from hermes_actors.telemetry.settings import telemetry_settings

_COLOURS = {OK: "green", WARN: "yellow", FAIL: "bold red"}

Look = Callable[[], Awaitable[list[Finding]]]
"""One check. HermesError and OSError count as failures."""

app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich")


@app.command(
    cls=PlainCommand,
    epilog=examples(
        "hermes doctor node.toml",
        "HERMES_NODE=dc1-1 hermes doctor           (while 'hermes dev' runs)",
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
    timeout_s: Annotated[
        float,
        typer.Option("--timeout-s", min=0.5, max=600, metavar="S", help="Time-out of each check."),
    ] = 5.0,
    output: OutputOption = Output.TABLE,
    json: JsonOption = False,
) -> None:
    """Check a node and everything that it needs; print problems and remedies. Changes nothing.

    Run it on the node's machine, as the node's user. It checks the configuration,
    files, disks, the running node and the certificates that it serves, Kafka, clocks,
    the schema registry and the collector. Exit code 0: no check failed, 1: a check failed,
    or nothing was checked.
    """
    named: dict[str, str] = {}
    try:
        config = configuration.load(file, os.environ)
        found = [_source(config, file)]
        found += [finding(WARN, "start", "plain listeners", each) for each in exposures(config)]
        found += guest.run(_look, config, timeout_s, bool(file))
        named = {"dc": config.dc, "node": config.node}
    except ConfigError as error:
        found = [finding(FAIL, "config", "configuration", error.message)]
    grade = max((each.grade for each in found), key=list(Grade).index)
    if json or output is Output.JSON:
        write_json(msgspec.json.encode({**named, "grade": grade, "diagnoses": found}))
    else:
        _show(found)
    if grade is Grade.FAIL:
        raise typer.Exit(EXIT_FAILED)


def _source(config: Config, file: Path | None) -> Finding:
    about = f"node {config.node} of {config.dc}, {', '.join(config.roles)}"
    if config == Config():
        text = "no file was given and no variable is set: these are the defaults"
        return finding(WARN, "config", about, f"{text}; name the node's file: hermes doctor FILE")
    return finding(OK, "config", about, f"{file or 'HERMES_… variables'}: valid")


class _Warnings(logging.Handler):
    """Turns logged warnings, which a node would also log at its start, into findings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[Finding] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Add a finding."""
        self.found.append(finding(WARN, "start", "warned of", record.getMessage()))


async def _look(config: Config, timeout_s: float, is_named: bool) -> list[Finding]:
    """Run all checks. Returns the findings in the order of the checks."""
    warnings = _Warnings()
    logging.getLogger("hermes_actors").addHandler(warnings)
    checks = list(_checks(config, timeout_s, is_named))
    found: list[list[Finding]] = [[] for _ in checks]

    async def run(place: list[Finding], check: str, about: str, look: Look) -> None:
        try:
            with trio.fail_after(timeout_s):
                place += await look()
        except HermesError as error:
            place.append(finding(FAIL, check, about, error.message))
        except OSError as error:
            place.append(finding(FAIL, check, about, str(error)))
        except trio.TooSlowError:
            text = f"no answer within {timeout_s:g} s; see whether it hangs, or raise --timeout-s"
            place.append(finding(FAIL, check, about, text))

    async with trio.open_nursery() as nursery:
        for place, check in zip(found, checks, strict=True):
            nursery.start_soon(run, place, *check)
    logging.getLogger("hermes_actors").removeHandler(warnings)
    return [each for place in (*found, warnings.found) for each in place]


def _checks(config: Config, timeout_s: float, is_named: bool) -> Iterator[tuple[str, str, Look]]:
    """Yield each check, with the texts for its failure."""
    clock = SystemClock()
    now_ms = clock.now_ms()
    yield "files", "the node's files and folders", partial(_look_at_machine, config, now_ms)
    registries = config.schema.urls if config.schema.registry == "http" else ()
    collectors = telemetry_settings(os.environ).collectors
    is_all = not (is_named or config.kafka.clusters or registries or collectors)
    node = partial(look_at_node, config, 0.8 * timeout_s, now_ms, is_all=is_all)
    yield "node", "the node's ports", node
    for dc in config.kafka.clusters:
        yield "kafka", f"Kafka of {dc}", partial(look_at_kafka, config, dc, clock, timeout_s)
    for url in registries:
        yield "registry", "schema.urls", partial(look_at_registry, config, url)
    for signal, (host, port) in collectors.items():
        look = partial(look_at_collector, signal, host, port, 0.8 * timeout_s)
        yield "telemetry", f"{signal} to {host}:{port}", look


async def _look_at_machine(config: Config, now_ms: int) -> list[Finding]:
    # A disk that hangs blocks only this thread, not the command.
    return await trio.to_thread.run_sync(
        lambda: list(look_at_machine(config, now_ms)), abandon_on_cancel=True
    )


def _show(found: Sequence[Finding]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for each in found:
        line = Text(f"{each.grade:<6}", _COLOURS[each.grade])
        line.append(printable(f"{each.check:<12}{each.about}: {each.seen}"), "default")
        console.print(line, soft_wrap=True)
        if each.way_out:
            console.print(Text(f"{'':18}-> {printable(each.way_out)}"), soft_wrap=True)
    counts = [(sum(each.grade is grade for each in found), grade) for grade in reversed(Grade)]
    console.print(Text(", ".join(f"{count} {grade}" for count, grade in counts if count), "bold"))
