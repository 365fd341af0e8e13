"""`hermes spark …`: Spark jobs over the logs of all datacentres."""

from pathlib import Path
from typing import Annotated

import typer

from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_actors.cli.command_line.options import examples
from hermes_actors.cli.command_line.plain import PlainCommand, command_group
from hermes_actors.errors import HermesError
from hermes_spark.archive.command import app as archive
from hermes_spark.latency.command import app as latency
from hermes_spark.options import (
    DatacentresOption,
    DcOption,
    MasterOption,
    SnapshotOption,
    TopicsOption,
    snapshot_of,
)
from hermes_spark.reconcile.acknowledged import acknowledged_list
from hermes_spark.reconcile.result import EXIT_CODES, Verdict
from hermes_spark.replay.command import replay
from hermes_spark.session import session

app = command_group("Check with Spark what was stored and delivered; archive and replay.")
app.add_typer(archive, name="archive")
app.add_typer(latency)


@app.callback()
def spark() -> None:
    """Check with Spark what was stored and delivered; archive and replay."""


@app.command(
    cls=PlainCommand,
    epilog=examples(
        "hermes spark snapshot --dc dc1=embedded:data/dc1 --dc dc2=embedded:data/dc2 -o s.json",
        "hermes spark snapshot --datacentres datacentres.toml --output s.json",
    ),
)
def snapshot(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The snapshot, as JSON.")
    ],
    dc: DcOption = None,
    file: DatacentresOption = None,
    master: MasterOption = "",
) -> None:
    """Record what all datacentres have stored and settled now, so that jobs can be repeated."""
    taken = snapshot_of(None, file, dc, lambda: session("hermes snapshot", master))
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
        typer.Option("--output", "-o", metavar="FOLDER", help="Folder for the report and tables."),
    ],
    dc: DcOption = None,
    file: DatacentresOption = None,
    snapshot: SnapshotOption = None,
    acknowledged: Annotated[
        list[str] | None,
        typer.Option(
            "--acknowledged",
            metavar="LIST",
            help="Acknowledged ids: FILE, TOPIC=FILE or topic:NAME; repeatable.",
        ),
    ] = None,
    topic: TopicsOption = None,
    master: MasterOption = "",
) -> None:
    """Report which messages are lost, duplicated and why, or not settled.

    Exit code 0: nothing is lost, 1: something is lost, 3: unknown, 2: the logs could not be read.
    """
    try:
        verdict = _reconciled(output, dc, file, snapshot, acknowledged, topic, master)
    except (HermesError, OSError) as error:
        # The usual exit code 1 of a failed command would mean here that something is lost.
        raise UsageWrong(str(error)) from error
    raise typer.Exit(EXIT_CODES[verdict])


def _reconciled(
    output: Path,
    dc: list[str] | None,
    file: Path | None,
    snapshot: Path | None,
    acknowledged: list[str] | None,
    topic: list[str] | None,
    master: str,
) -> Verdict:
    lists = [acknowledged_list(each) for each in acknowledged or []]
    if snapshot is None:
        print("what all datacentres hold and have settled …", flush=True)
    taken = snapshot_of(snapshot, file, dc, lambda: session("hermes reconcile", master))
    spark = session("hermes reconcile", master)
    from hermes_spark.reconcile.job import reconcile as run
    from hermes_spark.report.page import write_page

    output.mkdir(parents=True, exist_ok=True)
    taken.save(output / "snapshot.json")
    result = run(spark, taken, lists, output, topic or None, lambda line: print(line, flush=True))
    write_page(result, output / "report.html")
    print(*result.summary(), f"report: {output / 'report.html'}", sep="\n")
    return result.verdict


app.command(
    cls=PlainCommand,
    epilog=examples(
        "hermes spark replay report --archive /srv/archive --dry-run",
        "hermes spark replay report --archive /srv/archive --rate 50",
        "hermes spark replay report --which unsettled --subscription 'shop.orders$billing'",
        "hermes spark replay report --ids ids.txt --subscription 'shop.orders$billing'",
        "hermes spark replay tasks --task 3f0c… --archive /srv/archive",
    ),
)(replay)
