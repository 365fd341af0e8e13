"""`hermes spark …`: the data pipeline on Spark, over the logs of all datacentres."""

from pathlib import Path
from typing import Annotated

import typer

from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_actors.cli.command_line.options import examples
from hermes_actors.cli.command_line.plain import PlainCommand, command_group
from hermes_actors.runtime.clock import SystemClock
from hermes_spark.datacentres import datacentres
from hermes_spark.reconcile.acknowledged import acknowledged_list
from hermes_spark.reconcile.result import EXIT_CODES
from hermes_spark.session import session
from hermes_spark.snapshot import load_snapshot
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


@app.command(
    cls=PlainCommand,
    epilog=examples(
        "hermes spark reconcile --dc dc1=embedded:data/dc1 --dc dc2=embedded:data/dc2 -o report",
        "hermes spark reconcile --datacentres dcs.toml -o report --acknowledged sent.ndjson",
        "hermes spark reconcile --snapshot now.json -o report --acknowledged topic:shop.sent",
    ),
)
def reconcile(
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FOLDER", help="Where report and tables go."),
    ],
    dc: DcOption = None,
    file: DatacentresOption = None,
    snapshot: Annotated[
        Path | None,
        typer.Option("--snapshot", metavar="FILE", help="Of this snapshot, in the place of now."),
    ] = None,
    acknowledged: Annotated[
        list[str] | None,
        typer.Option(
            "--acknowledged",
            metavar="LIST",
            help="What publishers were told is stored: FILE, TOPIC=FILE or topic:NAME; repeatable.",
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC", help="Only this topic; repeatable."),
    ] = None,
    master: MasterOption = "",
) -> None:
    """Tell what is lost, what is doubled and why, and what subscriptions have not settled.

    Ends with 0 when nothing is lost, 1 when something is, and 3 when it cannot be known.
    """
    lists = [acknowledged_list(each) for each in acknowledged or []]
    if snapshot is not None and (dc or file is not None):
        raise UsageWrong("--snapshot says which datacentres; leave out --dc and --datacentres")
    described = {} if snapshot is not None else datacentres(file, dc or [])
    spark = session("hermes reconcile", master)
    if snapshot is not None:
        taken = load_snapshot(snapshot)
    else:
        print("what all datacentres hold and have settled …", flush=True)
        taken = take_snapshot(described, SystemClock().now_ms(), lambda: spark)
    from hermes_spark.reconcile.job import reconcile as run
    from hermes_spark.report.page import write_page

    output.mkdir(parents=True, exist_ok=True)
    taken.save(output / "snapshot.json")
    result = run(spark, taken, lists, output, topic or None, lambda line: print(line, flush=True))
    write_page(result, output / "report.html")
    print(*result.summary(), f"report: {output / 'report.html'}", sep="\n")
    raise typer.Exit(EXIT_CODES[result.verdict])
