"""`hermes kafka …`: named Kafka clusters of this machine, started, looked at and ended."""

import contextlib
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from hermes_actors.cli.command_line.failures import EXIT_FAILED, CommandFailed, UsageWrong
from hermes_actors.cli.command_line.options import Output, OutputOption, examples
from hermes_actors.cli.command_line.plain import PlainCommand, command_group
from hermes_actors.cli.output.render import counted, show_rows
from hermes_local import jars
from hermes_local.failures import LaunchFailed
from hermes_local.files import lock_of, locked, remove, remove_empty
from hermes_local.kafka import FULL_SPEED, STATE_FILE, Broker, Cluster
from hermes_local.lifecycle import stop_all

NAME_DEFAULT = "dc1"
PORT_DEFAULT = 9092
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")

kafka = command_group("Run Kafka clusters on this machine, without Docker.")

NameOption = Annotated[str, typer.Option("--name", metavar="NAME", help="Which cluster.")]
DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="The folder of all clusters, one subfolder for each; "
        "else hermes_actors/kafka in the user's data folder.",
    ),
]


@kafka.command(
    cls=PlainCommand,
    epilog=examples("hermes kafka up", "hermes kafka up --name dc2 --port 9192 --brokers 3"),
)
def up(
    brokers: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=9, help="1 for a new cluster, else as it was."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            min=1,
            max=65_535,
            help="The first broker's; the others count up. 9092 for a new cluster, else as it was.",
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
    """Start a cluster, or go on with its data, and return when it is ready.

    It goes on running; `hermes kafka down` ends it.
    """
    folder = _folder(data, name)
    settings = dict(_setting(each) for each in changes or [])
    with locked(lock_of(folder)):
        known = Cluster.found(folder)
        was_running = known is not None and all(each.is_running for each in known.brokers)
        if known is not None and known.is_running:
            _refuse_changes(known, f"hermes kafka down{_options(data, name)}", brokers, port)
        count = brokers or (len(known.brokers) if known else 1)
        first = port or (None if known else PORT_DEFAULT)
        if first is not None and first + count - 1 > 65_535:
            raise UsageWrong(f"--port {first}: there are no {count} ports from there on")
        cluster = Cluster(
            folder,
            brokers=count,
            ports=range(first, first + count) if first else None,
            settings=settings,
            heap_mb=heap_mb,
            jvm_options=FULL_SPEED,
            is_tethered=False,
        )
        if not was_running:
            if not jars.KAFKA.are_here():
                print("fetching Kafka's jars, once for this version …", file=sys.stderr, flush=True)
            cluster.start()
    servers = ",".join(cluster.bootstrap_servers)
    if prints_json:
        report = _report(folder, cluster.brokers, cluster.bootstrap_servers)
        print(json.dumps({**report, "alreadyRunning": was_running}))
        return
    print(f"Kafka {name} {'already runs' if was_running else 'runs'} at {servers}")
    print(f"data:  {folder}")
    print("use:   " + _use(name, servers))
    print(f"end:   hermes kafka down{_options(data, name)}")


@kafka.command(
    cls=PlainCommand,
    epilog=examples("hermes kafka down", "hermes kafka down --name dc2 --delete-data"),
)
def down(
    name: NameOption = NAME_DEFAULT,
    data: DataOption = None,
    deletes_data: Annotated[
        bool, typer.Option("--delete-data", help="Delete all its messages, too.")
    ] = False,
) -> None:
    """End a cluster; its data stays for the next `hermes kafka up`."""
    folder = _folder(data, name)
    with locked(lock_of(folder)):
        found = _found(folder)
        if found is None:
            raise _no_cluster(folder)
        brokers, _, damage = found
        was_running = any(each.is_running for each in brokers)
        stop_all({each.name: each for each in brokers})
        if deletes_data:
            # What `up` has made, and nothing that someone else has put there.
            for path in (*(each.folder for each in brokers), folder / STATE_FILE):
                remove(path)
            remove_empty([folder])
        elif damage:
            raise CommandFailed(damage)
    ended = "ended" if was_running else "did not run"
    left = "its data is deleted" if deletes_data else f"its data stays in {folder}"
    print(f"Kafka {name} {ended}; {left}")


@kafka.command(
    cls=PlainCommand,
    epilog=examples("hermes kafka status", "hermes kafka status --name dc2 -o json"),
)
def status(
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="This cluster only.")
    ] = None,
    data: DataOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show each cluster's brokers: whether they run, where, their memory and data on disk.

    Exit code 1 when what is known of one is damaged.
    """
    base = _base(data)
    if name is not None:
        folders = [_folder(data, name)]
    else:
        folders = sorted(base.iterdir()) if base.is_dir() else []
    reports = [_report(each, *found) for each in folders if (found := _found(each)) is not None]
    if name is not None and not reports:
        raise _no_cluster(folders[0])
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
        for damage in damages:
            print(f"hermes: {damage}", file=sys.stderr)
    if damages:
        raise typer.Exit(EXIT_FAILED)


def _rows(report: dict[str, Any]) -> list[tuple[str, ...]]:
    if not report["brokers"]:
        return [(report["name"], "", "damaged", "", "", "", report["folder"])]
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
    if data is not None:
        return data.resolve()
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "hermes_actors" / "kafka"


def _folder(data: Path | None, name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise UsageWrong(f"--name '{name}': use letters, digits, _ and -")
    return _base(data) / name


def _setting(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise UsageWrong(f"--set '{text}': write NAME=VALUE, for example log.retention.hours=1")
    return name.strip(), value.strip()


def _found(folder: Path) -> tuple[Sequence[Broker], list[str], str] | None:
    """A cluster's brokers, where clients reach them, what is wrong with what is known of it."""
    try:
        cluster = Cluster.found(folder)
    except LaunchFailed as damage:
        return Broker.found(folder), [], damage.message
    return None if cluster is None else (cluster.brokers, cluster.bootstrap_servers, "")


def _no_cluster(folder: Path) -> CommandFailed:
    return CommandFailed(
        f"there is no cluster {folder.name} in {folder.parent}; `hermes kafka status` lists those "
        "there, and --data names another folder"
    )


def _refuse_changes(cluster: Cluster, way_out: str, brokers: int | None, port: int | None) -> None:
    """A running cluster keeps its shape."""
    different = []
    if brokers not in (None, len(cluster.brokers)):
        different.append(counted(len(cluster.brokers), "broker"))
    if port not in (None, cluster.brokers[0].port):
        different.append(f"port {cluster.brokers[0].port}")
    if different:
        raise CommandFailed(
            f"it already runs, with {' and '.join(different)}; end it first: {way_out}"
        )


def _report(
    folder: Path, brokers: Sequence[Broker], servers: list[str], damage: str = ""
) -> dict[str, Any]:
    return {
        "name": folder.name,
        "running": any(each.is_running for each in brokers),
        "bootstrapServers": servers,
        "folder": str(folder),
        "damage": damage,
        "brokers": [
            {
                "id": each.node_id,
                "address": "" if damage else each.address,
                "state": f"{each.state}, damaged" if damage else each.state,
                "pid": each.pid,
                "memoryMib": round(each.process.rss_mb if each.process else 0.0, 1),
                "diskMib": round(_disk_bytes(each.folder) / 1_048_576, 1),
                "folder": str(each.folder),
            }
            for each in brokers
        ],
    }


def _disk_bytes(folder: Path) -> int:
    """Return the bytes that the files take: Kafka reserves much more than it has written."""
    total = 0
    for path in folder.rglob("*"):
        # Kafka deletes old files at any time.
        with contextlib.suppress(FileNotFoundError):
            total += path.lstat().st_blocks * 512
    return total


def _use(name: str, servers: str) -> str:
    """How a node is told of it; the cluster's name is taken for that of the datacentre.

    Only as far as a variable can say it: without capitals and hyphens.
    """
    name = name.lower().replace("-", "_")
    variable = f"HERMES_KAFKA_CLUSTERS_{name.upper()}_BOOTSTRAP_SERVERS"
    dc = "" if name == "dc1" else f"HERMES_DC={name} "
    return f"{dc}{variable}={servers} hermes node"


def _options(data: Path | None, name: str) -> str:
    named = "" if name == NAME_DEFAULT else f" --name {name}"
    return named + ("" if data is None else f" --data {data}")
