"""`hermes kafka …`: starts, shows and ends named Kafka clusters on this machine."""

import contextlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from hermes_actors.cli.command_line.failures import CommandFailed, UsageWrong
from hermes_actors.cli.command_line.options import Output, OutputOption, examples
from hermes_actors.cli.command_line.plain import PlainCommand, command_group
from hermes_actors.cli.output.render import counted, show_rows
from hermes_local.files import lock_of, locked, remove, remove_empty
from hermes_local.kafka import FULL_SPEED, Cluster, down_command, read_state
from hermes_local.lifecycle import STATE_FILE, Service, found, stop_all

NAME_DEFAULT = "dc1"
PORT_DEFAULT = 9092
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")

kafka = command_group("Run Kafka clusters on this machine, without Docker.")

NameOption = Annotated[str, typer.Option("--name", metavar="NAME", help="The cluster.")]
DataOption = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Folder of all clusters. Default: in the user's."),
]


@kafka.command(
    cls=PlainCommand,
    epilog=examples("hermes kafka up", "hermes kafka up --name dc2 --port 9192 --brokers 3"),
)
def up(
    brokers: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=9, help="Default: as at the last start, or 1."),
    ] = None,
    # Leaves ports for nine brokers.
    port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            min=1,
            max=65_527,
            help="The first broker's. Default: as at the last start, or 9092.",
        ),
    ] = None,
    name: NameOption = NAME_DEFAULT,
    data: DataOption = None,
    heap_mb: Annotated[
        int, typer.Option("--heap-mb", metavar="MB", min=128, help="Java heap of each broker.")
    ] = 512,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A Kafka broker setting; repeatable."),
    ] = None,
    prints_json: Annotated[
        bool, typer.Option("--json", help="When ready, print one JSON line.")
    ] = False,
) -> None:
    """Start a cluster, or restart it with its data, and return when it is ready.

    It keeps running until `hermes kafka down`.
    """
    folder = _folder(data, name)
    settings = dict(_setting(each) for each in changes or [])
    with locked(lock_of(folder)):
        known = read_state(folder).services(folder)
        was = (len(known), known["broker-1"].plan.ports[0]) if known else (1, PORT_DEFAULT)
        count, first = brokers or was[0], port or was[1]
        if (count, first) != was and _is_running(known):
            raise CommandFailed(
                f"it is already running, with {counted(was[0], 'broker')} and port {was[1]}; "
                f"end it first: {down_command(folder)}"
            )
        cluster = Cluster(
            folder,
            brokers=count,
            ports=range(first, first + count) if port or not known else (),
            settings=settings,
            heap_mb=heap_mb,
            jvm_options=FULL_SPEED,
            is_tethered=False,
        )
        was_running = all(each.is_running for each in cluster.brokers)
        if not was_running:
            cluster.start()
    servers = ",".join(cluster.bootstrap_servers)
    if prints_json:
        print(json.dumps({**_report(folder, cluster.services), "alreadyRunning": was_running}))
        return
    print(f"Kafka {name} {'already runs' if was_running else 'runs'} at {servers}")
    print(f"data:  {folder}")
    print("use:   " + _use(name, servers))
    print(f"end:   {down_command(folder)}")


@kafka.command(
    cls=PlainCommand, epilog=examples("hermes kafka down", "hermes kafka down --delete-data")
)
def down(
    name: NameOption = NAME_DEFAULT,
    data: DataOption = None,
    deletes_data: Annotated[
        bool, typer.Option("--delete-data", help="Also delete all its messages.")
    ] = False,
) -> None:
    """Stop a cluster; its data is kept for the next `hermes kafka up`."""
    folder = _folder(data, name)
    with locked(lock_of(folder)):
        brokers, damage = _found(folder)
        if not brokers and not damage:
            raise CommandFailed(
                f"there is no cluster {name} in {folder.parent}; `hermes kafka status` lists the "
                "clusters there, and --data selects another folder"
            )
        was_running = _is_running(brokers)
        stop_all(brokers)
        if deletes_data:
            # Only what `up` has created, and no other files.
            for path in (*(each.folder for each in brokers.values()), folder / STATE_FILE):
                remove(path)
            remove_empty([folder])
        elif damage:
            raise CommandFailed(damage)
    ended = "ended" if was_running else "did not run"
    left = "its data is deleted" if deletes_data else f"its data stays in {folder}"
    print(f"Kafka {name} {ended}; {left}")


@kafka.command(cls=PlainCommand, epilog=examples("hermes kafka status -o json"))
def status(data: DataOption = None, output: OutputOption = Output.TABLE) -> None:
    """Show each cluster's brokers: their state, address, memory and disk usage.

    Exit code 1 if a cluster's state is damaged.
    """
    base = _base(data)
    folders = sorted(base.iterdir()) if base.is_dir() else []
    reports = [_report(each, *_found(each)) for each in folders]
    reports = [each for each in reports if each["brokers"] or each["damage"]]
    damages = [report["damage"] for report in reports if report["damage"]]
    if output is Output.JSON:
        print(json.dumps(reports))
    elif not reports:
        print(f"no clusters in {base}; `hermes kafka up` starts one")
    else:
        show_rows(
            ("cluster", "broker", "state", "pid", "memory", "disk", "folder"),
            [row for report in reports for row in _rows(report)],
            "",
        )
    if damages:
        raise CommandFailed("\n".join(damages))


def _rows(report: dict[str, Any]) -> list[tuple[str, ...]]:
    return [
        (
            report["name"],
            each["address"],
            each["state"],
            str(each["pid"] or ""),
            f"{each['memoryMib']:.0f} MiB" if each["pid"] else "",
            f"{each['diskMib']:.1f} MiB",
            each["folder"],
        )
        for each in report["brokers"]
    ]


def _base(data: Path | None) -> Path:
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return data.resolve() if data else Path(home) / "hermes_actors" / "kafka"


def _folder(data: Path | None, name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise UsageWrong(f"--name '{name}': use letters, digits, _ and -")
    return _base(data) / name


def _setting(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise UsageWrong(f"--set '{text}': write NAME=VALUE, for example log.retention.hours=1")
    return name.strip(), value.strip()


def _found(folder: Path) -> tuple[dict[str, Service], str]:
    return found(folder, "broker-[1-9]", read_state)


def _is_running(brokers: Mapping[str, Service]) -> bool:
    return any(each.is_running for each in brokers.values())


def _report(folder: Path, brokers: Mapping[str, Service], damage: str = "") -> dict[str, Any]:
    reports = [_report_of(each, damage) for each in brokers.values()]
    return {
        "name": folder.name,
        "running": _is_running(brokers),
        "bootstrapServers": [each["address"] for each in reports if each["address"]],
        "folder": str(folder),
        "damage": damage,
        "brokers": reports,
    }


def _report_of(broker: Service, damage: str) -> dict[str, Any]:
    process = broker.process
    state = "down" if process is None else "paused" if process.is_paused else "running"
    return {
        "id": int(broker.name.removeprefix("broker-")),
        "address": "" if damage else f"{broker.host}:{broker.plan.ports[0]}",
        "state": f"{state}, damaged" if damage else state,
        "pid": process.pid if process else None,
        "memoryMib": round(process.rss_mb if process else 0.0, 1),
        "diskMib": round(_disk_bytes(broker.folder) / 1_048_576, 1),
        "folder": str(broker.folder),
    }


def _disk_bytes(folder: Path) -> int:
    """The bytes used on disk; Kafka reserves much more than it has written."""
    total = 0
    for path in folder.rglob("*"):
        # Kafka deletes old files at any time.
        with contextlib.suppress(FileNotFoundError):
            total += path.lstat().st_blocks * 512
    return total


def _use(name: str, servers: str) -> str:
    """Return the command to run a node on the cluster, with the cluster's name as datacentre if
    a variable's name allows it (no capitals or hyphens).
    """
    name = name.lower().replace("-", "_")
    variable = f"HERMES_KAFKA_CLUSTERS_{name.upper()}_BOOTSTRAP_SERVERS"
    dc = "" if name == "dc1" else f"HERMES_DC={name} "
    return f"{dc}{variable}={servers} hermes node"
