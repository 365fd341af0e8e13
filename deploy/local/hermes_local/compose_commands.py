"""`hermes compose …`: the services of a compose file on this machine, without Docker."""

import contextlib
import fcntl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from hermes_actors.cli.failures import EXIT_FAILED
from hermes_actors.cli.options import Output, OutputOption, examples
from hermes_actors.cli.plain import PlainCommand, PlainGroup
from hermes_local.compose import COMPOSE_FILE, START_TIMEOUT_S, Topology
from hermes_local.compose_state import Record, State, published
from hermes_local.interpolation import ComposeWrong
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
    epilog=examples("hermes compose up", "hermes compose up frontend-dc1-1 --network 127.0.2.0/24"),
)
def up(
    names: NamesArgument = None,
    file: Annotated[
        Path, typer.Option("--file", "-f", metavar="FILE", help="The compose file.")
    ] = COMPOSE_FILE,
    data: DataOption = DATA_DEFAULT,
    network: Annotated[
        str,
        typer.Option(metavar="CIDR", help="A part of 127.0.0.0/8: one address for each service."),
    ] = NETWORK_DEFAULT,
    profiles: Annotated[
        list[str] | None,
        typer.Option("--profile", metavar="NAME", help="Services of this profile too."),
    ] = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="S", help="How long all may take to be healthy.")
    ] = START_TIMEOUT_S,
) -> None:
    """Start services, each after what it depends on, and return when all are healthy.

    They go on running; `hermes compose down` ends them.
    """
    with _alone(data):
        running = [each for each in State(data).records().values() if each.process.is_running]
        if running:
            raise ComposeWrong(
                f"{', '.join(each.name for each in running)}: up already, from {data}; "
                "`hermes compose down` first, or another --data and --network"
            )
        topology = Topology(
            file,
            data=data,
            network=network,
            wanted=names or (),
            profiles=profiles or (),
            is_tethered=False,
            say=lambda line: print(line, flush=True),
        )
        for name, image in topology.skipped.items():
            print(f"{name}: skipped ({image}): this launcher runs Kafka and our own nodes")
        if topology.not_applied:
            print(f"not applied to plain processes: {', '.join(topology.not_applied)}", flush=True)
        topology.start(timeout_s=timeout_s)
    for service in topology.services.values():
        for outside, here in published(service).items():
            print(f"{service.name}: what Compose publishes at {outside} is here at http://{here}")
    print(f"logs and data: {topology.data}")


@compose.command(cls=PlainCommand, epilog=examples("hermes compose down"))
def down(
    data: DataOption = DATA_DEFAULT,
    removes_volumes: Annotated[
        bool, typer.Option("--volumes", "-v", help="Remove what the services stored, too.")
    ] = False,
) -> None:
    """Drain and end everything that `hermes compose up` started; stored data stays."""
    import shutil

    if not data.is_dir():
        print(f"nothing is up from {data}")
        return
    with _alone(data):
        state = State(data)
        names = list(state.records())
        killed = state.stop_all()
    print(f"ended: {', '.join(names)}" if names else f"nothing is up from {data}")
    if removes_volumes:
        shutil.rmtree(data / "volumes", ignore_errors=True)
        shutil.rmtree(data / "services", ignore_errors=True)
    if killed:
        raise ComposeWrong(f"killed after their grace period: {', '.join(killed)}")


@compose.command(
    cls=PlainCommand, epilog=examples("hermes compose status", "hermes compose status -o json")
)
def status(data: DataOption = DATA_DEFAULT, output: OutputOption = Output.TABLE) -> None:
    """Show each service: its address, process and health. Exit code 1 when one is not well."""
    import json

    records = State(data).records()
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
        print(json.dumps(rows))
    elif not records:
        print(f"nothing is up from {data}")
    else:
        width = max(map(len, records))
        for name, each in records.items():
            where = " ".join(f"{each.address}:{port}" for port in each.ports)
            print(f"{name:<{width}}  {each.pid:>8}  {conditions[name]:<9}  {where}")
    if any(each not in ("healthy", "running") for each in conditions.values()):
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
    records = State(data).records()
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
    data.mkdir(parents=True, exist_ok=True)
    with (data / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ComposeWrong(
                f"{data}: another `hermes compose up` or `down` is at work there; wait for its "
                "end, or use another --data and --network"
            ) from error
        yield


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
