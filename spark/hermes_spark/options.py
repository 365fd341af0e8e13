"""The options that select what a job reads, common to all jobs."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_actors.runtime.clock import SystemClock
from hermes_spark.datacentres import datacentres
from hermes_spark.snapshot import Snapshot, load_snapshot
from hermes_spark.taking import take_snapshot

DcOption = Annotated[
    list[str] | None,
    typer.Option(
        "--dc",
        metavar="NAME=LOG",
        help="A datacentre: name=kafka:host:port,… or name=embedded:folder; repeatable.",
    ),
]
DatacentresOption = Annotated[
    Path | None,
    typer.Option(
        "--datacentres", metavar="FILE", help="The same as TOML, with namespaces and TLS or SASL."
    ),
]
SnapshotOption = Annotated[
    Path | None,
    typer.Option(
        "--snapshot", metavar="FILE", help="Use this snapshot instead of the current logs."
    ),
]
TopicsOption = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC", help="Only this topic; repeatable."),
]
MasterOption = Annotated[
    str,
    typer.Option(
        "--master", metavar="URL", help="Spark's master. Default: spark-submit's, or local[2]."
    ),
]


def require_topics(snapshot: Snapshot, option: str, names: Iterable[str]) -> None:
    """Raise UsageWrong, naming the option, for a topic that no datacentre has."""
    for name in names:
        if not any(name in each.topics for each in snapshot.datacentres.values()):
            raise UsageWrong(f"{option} {name}: no datacentre has that topic")


def snapshot_of(
    snapshot: Path | None, file: Path | None, dc: Sequence[str] | None, session: Callable[[], Any]
) -> Snapshot:
    """The snapshot in the options, or a new one of the datacentres in the options.

    Raises UsageWrong, LaunchFailed and SourceFailed.
    """
    if snapshot is None:
        described = datacentres(file, dc or [])
        return take_snapshot(described, SystemClock().now_ms(), session)
    if dc or file is not None:
        raise UsageWrong("--snapshot has the datacentres; leave out --dc and --datacentres")
    return load_snapshot(snapshot)
