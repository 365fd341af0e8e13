"""`hermes compose …`: the services of a compose file on this machine, without Docker."""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from hermes_actors.cli.command_line.failures import EXIT_FAILED
from hermes_actors.cli.command_line.options import Output, OutputOption, examples
from hermes_actors.cli.command_line.plain import PlainCommand, PlainGroup
from hermes_local.compose import COMPOSE_FILE, START_TIMEOUT_S, Topology
from hermes_local.compose_state import Record, State, published
from hermes_local.interpolation import ComposeWrong
from hermes_local.leftovers import Leftovers, prune
from hermes_local.locks import exclusive, remove_empty
from hermes_local.rewriting import NETWORK_DEFAULT

DATA_DEFAULT = Path(".hermes-compose")
_READ_BYTES = 65_536
_FOLLOW_POLL_S = 0.2

compose = typer.Typer(
    cls=PlainGroup,
    no_args_is_help=True,
    help="Run a compose file's services as local processes, without Docker.",
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

DataOption = Annotated[
    Path,
    typer.Option("--data", metavar="DIR", help="Volumes, logs, rewritten configuration, state."),
]
NamesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="SERVICE…", help="These only; none: all.")
]


@compose.command(
    cls=PlainCommand,
    epilog=examples("hermes compose up", "hermes compose up frontend-dc1-1"),
)
def up(
    names: NamesArgument = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="The compose file; else as it was, or deploy/compose.yaml.",
        ),
    ] = None,
    data: DataOption = DATA_DEFAULT,
    network: Annotated[
        str | None,
        typer.Option(
            metavar="CIDR",
            help="A part of 127.0.0.0/8, one address for each service; else as it was, or "
            f"{NETWORK_DEFAULT}.",
        ),
    ] = None,
    profiles: Annotated[
        list[str] | None,
        typer.Option("--profile", metavar="NAME", help="Services of this profile too."),
    ] = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="S", help="How long all may take to be healthy.")
    ] = START_TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Start services, each after what it depends on, and return when all are healthy.

    Those that run already stay as they are, so this also starts again what has ended. They go on
    running; `hermes compose down` ends them.
    """
    # Progress is no result: for programs there is one line of JSON, at the end.
    out = sys.stderr if output is Output.JSON else sys.stdout

    def say(line: str) -> None:
        print(line, file=out, flush=True)

    with _alone(data):
        before = State(data).saved()
        leftovers = Leftovers(data.resolve())
        topology = None
        try:
            topology = Topology(
                file or Path(before.file or COMPOSE_FILE),
                data=data,
                network=network or before.network or NETWORK_DEFAULT,
                wanted=names or (),
                profiles=profiles or (),
                is_tethered=False,
                keeps_running=True,
                say=say,
            )
            _start(topology, timeout_s, say)
        except BaseException as error:
            leftovers.remove(_worth_keeping(topology, str(error)))
            raise
    urls = topology.client_urls()
    if output is Output.JSON:
        print(json.dumps(_up_report(topology, urls)))
        return
    for service in topology.services.values():
        for outside, here in published(service).items():
            print(f"{service.name}: what Compose publishes at {outside} is here at http://{here}")
    print(f"logs and data: {topology.data}")
    if urls:
        print("next, so that `hermes topic list`, `hermes publish` and the rest find it:")
    for variable, url in urls.items():
        print(f"export {variable}={url}")


def _start(topology: Topology, timeout_s: float, say: Callable[[str], None]) -> None:
    for name, image in topology.skipped.items():
        say(f"{name}: skipped ({image}): this launcher runs Kafka and our own nodes")
    if topology.kept:
        some = "" if len(topology.kept) < len(topology.services) else ", so all is up"
        say(f"runs already{some}: {', '.join(topology.kept)}")
        if some:
            return
    if topology.not_applied:
        say(f"not applied to plain processes: {', '.join(topology.not_applied)}")
    topology.start(timeout_s=timeout_s)


def _worth_keeping(topology: Topology | None, message: str) -> list[Path]:
    """Of what a failed start has made: the logs that its message names, and what was stored."""
    if topology is None:
        return []
    logs = [path for each in topology.services.values() for path in each.logs]
    stored = [
        topology.data / "volumes" / mount.source
        for name in topology.healthy
        for mount in topology.services[name].spec.mounts
        if not mount.is_bind
    ]
    return [*(path for path in logs if str(path) in message), *stored]


def _up_report(topology: Topology, urls: dict[str, str]) -> dict[str, Any]:
    return {
        "started": topology.healthy,
        "alreadyRunning": topology.kept,
        "skipped": topology.skipped,
        "notApplied": topology.not_applied,
        "published": {name: published(each) for name, each in topology.services.items()},
        "data": str(topology.data),
        "environment": urls,
    }


@compose.command(cls=PlainCommand, epilog=examples("hermes compose down"))
def down(
    data: DataOption = DATA_DEFAULT,
    removes_volumes: Annotated[
        bool, typer.Option("--volumes", "-v", help="Remove what the services stored, too.")
    ] = False,
) -> None:
    """Drain and end everything that `hermes compose up` started; stored data stays."""
    if not data.is_dir():
        print(f"nothing is up from {data}")
        return
    with _alone(data):
        names, killed = State(data).stop_all()
        if removes_volumes:
            prune(data / "volumes")
            prune(data / "services")
    if removes_volumes:
        remove_empty([data])
    print(f"ended: {', '.join(names)}" if names else f"nothing is up from {data}")
    if killed:
        raise ComposeWrong(f"killed after their grace period: {', '.join(killed)}")


@compose.command(
    cls=PlainCommand, epilog=examples("hermes compose status", "hermes compose status -o json")
)
def status(data: DataOption = DATA_DEFAULT, output: OutputOption = Output.TABLE) -> None:
    """Show each service: its address, process and health. Exit code 1 when one is not well."""
    saved = State(data).saved()
    records = saved.records
    conditions = {name: each.condition() for name, each in records.items()}
    if output is Output.JSON:
        rows = [
            {
                "service": name,
                "condition": conditions[name],
                "address": each.address,
                "ports": list(each.ports),
                "published": each.published,
                "pid": each.pid,
                "log": each.log,
            }
            for name, each in records.items()
        ]
        rows += [
            {"service": name, "condition": f"damaged: {reason}"}
            for name, reason in saved.damaged.items()
        ]
        print(json.dumps(rows))
    elif not saved.services:
        print(f"nothing is up from {data}")
    else:
        width = max(map(len, saved.services))
        for name, each in records.items():
            where = " ".join(f"{each.address}:{port}" for port in each.ports)
            print(f"{name:<{width}}  {each.pid:>8}  {conditions[name]:<9}  {where}")
        for name in saved.damaged:
            print(f"{name:<{width}}  {'':>8}  damaged")
    for name, reason in saved.damaged.items():
        print(
            f"hermes: {State(data).path}: {name} is damaged ({reason}); `hermes compose down "
            f"--data {data}` forgets it if it does not run, and `hermes compose up` starts it then",
            file=sys.stderr,
        )
    if saved.damaged or any(each not in ("healthy", "running") for each in conditions.values()):
        raise typer.Exit(EXIT_FAILED)


@compose.command(cls=PlainCommand, epilog=examples("hermes compose logs --follow management-dc1"))
def logs(
    names: NamesArgument = None,
    data: DataOption = DATA_DEFAULT,
    follows: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes.")] = False,
    tail: Annotated[
        int, typer.Option(min=0, metavar="N", help="Begin with the last N lines of each.")
    ] = 100,
) -> None:
    """Print what services wrote to stdout and stderr, each line with its service's name."""
    records = State(data).saved().records
    for name in names or ():
        if name not in records:
            raise ComposeWrong(f"no service '{name}' is up from {data}")
    chosen = [records[name] for name in names or records]
    width = max((len(each.name) for each in chosen), default=0)
    positions = {}
    for each in chosen:
        lines, positions[each.name] = _last_lines(Path(each.log), tail)
        for line in lines:
            print(f"{each.name:<{width}} | {line}")
    while follows and chosen:
        time.sleep(_FOLLOW_POLL_S)
        for name, line in _new_lines(chosen, positions):
            print(f"{name:<{width}} | {line}", flush=True)


@contextlib.contextmanager
def _alone(data: Path) -> Iterator[None]:
    """One `up` or `down` of a folder at a time: else one forgets what the other has started."""
    try:
        with exclusive(data / "lock", waits=False):
            yield
    except BlockingIOError as error:
        raise ComposeWrong(
            f"{data}: another `hermes compose up` or `down` is at work there; wait for its "
            "end, or use another --data and --network"
        ) from error


def _last_lines(path: Path, count: int) -> tuple[list[str], int]:
    """The last whole lines of a file, and where they end."""
    data = b""
    with path.open("rb") as file:
        begin = end = file.seek(0, 2)
        while begin > 0 and data.count(b"\n") <= count:
            step = min(_READ_BYTES, begin)
            begin -= step
            file.seek(begin)
            data = file.read(step) + data
    whole, _, rest = data.rpartition(b"\n")
    lines = whole.decode(errors="replace").splitlines() if whole else []
    return lines[-count:] if count else [], end - len(rest)


def _new_lines(records: list[Record], positions: dict[str, int]) -> Iterator[tuple[str, str]]:
    for each in records:
        with Path(each.log).open("rb") as file:
            file.seek(positions[each.name])
            whole, line_end, _ = file.read().rpartition(b"\n")
        positions[each.name] += len(whole) + len(line_end)
        for line in whole.decode(errors="replace").splitlines():
            yield each.name, line
