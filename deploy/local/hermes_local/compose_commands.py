"""`hermes compose …`: runs the services of a compose file on this machine, without Docker."""

import json
import sys
import time
from collections import deque
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from hermes_actors.cli.command_line.failures import EXIT_FAILED
from hermes_actors.cli.command_line.options import Output, OutputOption, examples
from hermes_actors.cli.command_line.plain import PlainCommand, command_group
from hermes_local.compose import COMPOSE_FILE, SERVICES, Topology, read_state
from hermes_local.failures import LaunchFailed
from hermes_local.files import lock_of, locked, remove, remove_empty
from hermes_local.lifecycle import START_TIMEOUT_S, STATE_FILE, Service, found, stop_all
from hermes_local.rewriting import NETWORK_DEFAULT

DATA_DEFAULT = Path(".hermes-compose")
_FOLLOW_POLL_S = 0.2

compose = command_group("Run a compose file's services as local processes, without Docker.")

DataOption = Annotated[
    Path, typer.Option("--data", metavar="DIR", help="Volumes, logs, configuration and state.")
]
NamesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="SERVICE…", help="Only these services. Default: all.")
]


@compose.command(
    cls=PlainCommand, epilog=examples("hermes compose up", "hermes compose up frontend-dc1-1")
)
def up(
    names: NamesArgument = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="Default: that of the last start, or deploy/compose.yaml.",
        ),
    ] = None,
    data: DataOption = DATA_DEFAULT,
    network: Annotated[
        str | None,
        typer.Option(
            metavar="CIDR", help=f"Default: that of the last start, or {NETWORK_DEFAULT}."
        ),
    ] = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="S", help="Maximum wait until all are healthy.")
    ] = START_TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Start services, each after its dependencies, and return when all are healthy.

    Running services are left alone, so this also restarts those that have ended. They keep running
    until `hermes compose down`.
    """
    # Progress is not a result: programs get one line of JSON at the end.
    say = partial(print, file=sys.stderr if output is Output.JSON else sys.stdout, flush=True)
    with locked(lock_of(data)):
        before = read_state(data)
        topology = Topology(
            file or Path(before.file or COMPOSE_FILE),
            data=data,
            network=network or before.network or NETWORK_DEFAULT,
            wanted=names or (),
            is_tethered=False,
            say=say,
        )
        for name, image in topology.skipped.items():
            say(f"{name}: skipped ({image}): this launcher runs Kafka and our own nodes")
        kept = [name for name, each in topology.services.items() if each.is_running]
        all_are_up = len(kept) == len(topology.services)
        if kept:
            so = ", so everything is up" if all_are_up else ""
            say(f"already running{so}: {', '.join(kept)}")
        if not all_are_up:
            say(f"not applied to plain processes: {', '.join(topology.not_applied)}")
            topology.start(timeout_s)
    urls = topology.client_urls()
    published = {name: each.plan.published for name, each in topology.services.items()}
    if output is Output.JSON:
        report = {
            "started": [name for name in topology.healthy if name not in kept],
            "alreadyRunning": kept,
            "skipped": topology.skipped,
            "notApplied": topology.not_applied,
            "published": published,
            "data": str(topology.folder),
            "environment": urls,
        }
        print(json.dumps(report))
        return
    for name, places in published.items():
        for outside, here in places.items():
            print(f"{name}: what Compose publishes at {outside} is here at http://{here}")
    print(f"logs and data: {topology.folder}")
    if urls:
        print(
            "then run this, so that `hermes topic list`, `hermes publish` and the other "
            "commands find it:"
        )
    for variable, url in urls.items():
        print(f"export {variable}={url}")


@compose.command(cls=PlainCommand, epilog=examples("hermes compose down"))
def down(
    data: DataOption = DATA_DEFAULT,
    removes_volumes: Annotated[
        bool, typer.Option("--volumes", "-v", help="Also remove stored data.")
    ] = False,
) -> None:
    """Drain and stop everything that `hermes compose up` started; stored data is kept."""
    with locked(lock_of(data)):
        services, _ = found(data, f"{SERVICES}/*", read_state)
        killed = stop_all(services)
        remove(data / STATE_FILE)
        if removes_volumes:
            remove(data / "volumes")
            remove(data / SERVICES)
            remove_empty([data])
    print(f"stopped: {', '.join(services)}" if services else f"nothing is up from {data}")
    if killed:
        raise LaunchFailed(f"killed after their grace period: {', '.join(killed)}")


@compose.command(cls=PlainCommand, epilog=examples("hermes compose status -o json"))
def status(data: DataOption = DATA_DEFAULT, output: OutputOption = Output.TABLE) -> None:
    """Show each service's address, process and health. Exit code 1 if one is not healthy."""
    rows = [_row(each) for each in _services(data).values()]
    if output is Output.JSON:
        print(json.dumps(rows))
    elif not rows:
        print(f"nothing is up from {data}")
    else:
        width = max(len(row["service"]) for row in rows)
        for row in rows:
            where = " ".join(f"{row['address']}:{port}" for port in row["ports"])
            told = f"{row['pid'] or '':>8}  {row['condition']:<9}  {where}"
            print(f"{row['service']:<{width}}  {told}")
    if any(row["condition"] not in ("healthy", "running") for row in rows):
        raise typer.Exit(EXIT_FAILED)


@compose.command(cls=PlainCommand, epilog=examples("hermes compose logs --follow management-dc1"))
def logs(
    names: NamesArgument = None,
    data: DataOption = DATA_DEFAULT,
    follows: Annotated[bool, typer.Option("--follow", "-f", help="Follow new lines.")] = False,
    tail: Annotated[
        int, typer.Option(min=0, metavar="N", help="Start with the last N lines of each.")
    ] = 100,
) -> None:
    """Print services' stdout and stderr, each line with its service's name."""
    services = _services(data)
    for name in names or ():
        if name not in services:
            raise LaunchFailed(f"no service '{name}' is up from {data}")
    files = {name: services[name].log_path.open(errors="replace") for name in names or services}
    width = max(map(len, files), default=0)
    for name, file in files.items():
        for line in deque(file, tail):
            print(f"{name:<{width}} | {line}", end="")
    while follows and files:
        time.sleep(_FOLLOW_POLL_S)
        for name, file in files.items():
            for line in file:
                print(f"{name:<{width}} | {line}", end="", flush=True)


def _services(data: Path) -> dict[str, Service]:
    return read_state(data).services(data / SERVICES)


def _row(service: Service) -> dict[str, Any]:
    pid, fault = service.pid, service.health()
    well = "healthy" if service.plan.check else "running"
    return {
        "service": service.name,
        "condition": "ended" if pid is None else f"unhealthy: {fault}" if fault else well,
        "address": service.host,
        "ports": list(service.plan.ports),
        "published": service.plan.published,
        "pid": pid,
        "log": str(service.log_path),
    }
