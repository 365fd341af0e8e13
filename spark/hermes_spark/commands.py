"""`hermes spark …`: the data pipeline on Spark, over the logs of all datacentres."""

from pathlib import Path
from typing import Annotated

import typer

from hermes_actors.cli.command_line.options import examples
from hermes_actors.cli.command_line.plain import PlainCommand, command_group
from hermes_actors.runtime.clock import SystemClock
from hermes_spark.datacentres import datacentres
from hermes_spark.session import session
from hermes_spark.taking import take_snapshot

app = command_group("Prove on Spark what was stored and delivered; archive, replay, measure.")

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
MasterOption = Annotated[
    str,
    typer.Option(
        "--master", metavar="URL", help="Spark's master; else local[2], or what spark-submit says."
    ),
]


@app.callback()
def spark() -> None:
    """Prove on Spark what was stored and delivered; archive, replay, measure."""


@app.command(
    cls=PlainCommand,
    epilog=examples(
        "hermes spark snapshot --dc dc1=embedded:data/dc1 --dc dc2=embedded:data/dc2 -o s.json",
        "hermes spark snapshot --datacentres datacentres.toml --output s.json",
    ),
)
def snapshot(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Where it is written, as JSON.")
    ],
    dc: DcOption = None,
    file: DatacentresOption = None,
    master: MasterOption = "",
) -> None:
    """Keep what all datacentres hold and have settled now, so that jobs can be run again on it."""
    described = datacentres(file, dc or [])
    taken = take_snapshot(
        described, SystemClock().now_ms(), lambda: session("hermes snapshot", master)
    )
    taken.save(output)
    for name, each in taken.datacentres.items():
        print(
            f"{name}: {each.records:,} records in {len(each.topics)} topics, "
            f"{len(each.groups)} consumer groups"
        )
    print(f"snapshot: {output}")
