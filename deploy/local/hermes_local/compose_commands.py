"""`hermes compose …`: the services of a compose file on this machine, without Docker."""

import json
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from hermes_actors.cli.command_line.failures import EXIT_FAILED
from hermes_actors.cli.command_line.options import Output, OutputOption, examples
from hermes_actors.cli.command_line.plain import PlainCommand, command_group
from hermes_local.compose import (
    COMPOSE_FILE,
    START_TIMEOUT_S,
    STATE_FILE,
    Topology,
    TopologyState,
    found,
)
from hermes_local.failures import LaunchFailed
from hermes_local.files import lock_of, locked, remove, remove_empty
from hermes_local.lifecycle import stop_all
from hermes_local.rewriting import NETWORK_DEFAULT

DATA_DEFAULT = Path(".hermes-compose")
_FOLLOW_POLL_S = 0.2

compose = command_group("Run a compose file's services as local processes, without Docker.")

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
        before = TopologyState.read(data)
        topology = Topology(
            file or Path(before.file or COMPOSE_FILE),
            data=data,
            network=network or before.network or NETWORK_DEFAULT,
            wanted=names or (),
            is_tethered=False,
            keeps_running=True,
            say=say,
        )
        for name, image in topology.skipped.items():
            say(f"{name}: skipped ({image}): this launcher runs Kafka and our own nodes")
        all_are_up = len(topology.kept) == len(topology.services)
        if topology.kept:
            so = ", so all is up" if all_are_up else ""
            say(f"runs already{so}: {', '.join(topology.kept)}")
        if not all_are_up:
            say(f"not applied to plain processes: {', '.join(topology.not_applied)}")
            topology.start(timeout_s=timeout_s)
    urls = topology.client_urls()
    published = {name: each.plan.published for name, each in topology.services.items()}
    if output is Output.JSON:
        report = {
            "started": topology.started,
            "alreadyRunning": topology.kept,
            "skipped": topology.skipped,
            "notApplied": topology.not_applied,
            "published": published,
            "data": str(topology.data),
            "environment": urls,
        }
        print(json.dumps(report))
        return
    for name, places in published.items():
        for outside, here in places.items():
            print(f"{name}: what Compose publishes at {outside} is here at http://{here}")
    print(f"logs and data: {topology.data}")
    if urls:
        print("next, so that `hermes topic list`, `hermes publish` and the rest find it:")
    for variable, url in urls.items():
        print(f"export {variable}={url}")


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
        services = found(data)
        killed = stop_all(services)
        remove(data / STATE_FILE)
        if removes_volumes:
            remove(data / "volumes")
            remove(data / "services")
            remove_empty([data])
    print(f"ended: {', '.join(services)}" if services else f"nothing is up from {data}")
    if killed:
        raise LaunchFailed(f"killed after their grace period: {', '.join(killed)}")


@compose.command(
    cls=PlainCommand, epilog=examples("hermes compose status", "hermes compose status -o json")
)
def status(data: DataOption = DATA_DEFAULT, output: OutputOption = Output.TABLE) -> None:
    """Show each service: its address, process and health. Exit code 1 when one is not well."""
    services = TopologyState.read(data).services(data)
    rows = []
    for name, each in services.items():
        pid, fault = each.pid, each.health()
        well = "healthy" if each.plan.check else "running"
        rows.append(
            {
                "service": name,
                "condition": "ended" if pid is None else f"unhealthy: {fault}" if fault else well,
                "address": each.host,
                "ports": list(each.plan.ports),
                "published": each.plan.published,
                "pid": pid,
                "log": str(each.log_path),
            }
        )
    if output is Output.JSON:
        print(json.dumps(rows))
    elif not rows:
        print(f"nothing is up from {data}")
    else:
        width = max(map(len, services))
        for row, each in zip(rows, services.values(), strict=True):
            where = " ".join(f"{each.host}:{port}" for port in each.plan.ports)
            pid_text = row["pid"] or ""
            print(f"{each.name:<{width}}  {pid_text:>8}  {row['condition']:<9}  {where}")
    if any(row["condition"] not in ("healthy", "running") for row in rows):
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
    services = TopologyState.read(data).services(data)
    for name in names or ():
        if name not in services:
            raise LaunchFailed(f"no service '{name}' is up from {data}")
    chosen = [services[name] for name in names or services]
    width = max((len(each.name) for each in chosen), default=0)
    files = {each.name: each.log_path.open(errors="replace") for each in chosen}
    for name, file in files.items():
        for line in deque(file, tail):
            print(f"{name:<{width}} | {line}", end="")
    while follows and chosen:
        time.sleep(_FOLLOW_POLL_S)
        for name, file in files.items():
            for line in file:
                print(f"{name:<{width}} | {line}", end="", flush=True)


@contextmanager
def _alone(data: Path) -> Iterator[None]:
    """One `up` or `down` of a folder at a time: else one forgets what the other has started."""
    try:
        with locked(lock_of(data), waits=False):
            yield
    except BlockingIOError as error:
        raise LaunchFailed(
            f"{data}: another `hermes compose up` or `down` is at work there; wait for its "
            "end, or use another --data and --network"
        ) from error
