"""`hermes spark latency`: delivery latencies of messages, and the cost of hedging."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from hermes_actors.cli.command_line.options import examples
from hermes_actors.cli.command_line.plain import PlainCommand, command_group
from hermes_actors.cli.output.render import show_rows
from hermes_spark.latency.journals import journal_of
from hermes_spark.latency.result import Result
from hermes_spark.options import (
    DatacentresOption,
    DcOption,
    MasterOption,
    SnapshotOption,
    TopicsOption,
    require_topics,
    snapshot_of,
)
from hermes_spark.session import session

app = command_group("")


@app.command(
    cls=PlainCommand,
    epilog=examples(
        "hermes spark latency --datacentres dcs.toml --output latency",
        "hermes spark latency --snapshot s.json -o latency --journal 'shop.orders$a=taken.ndjson'",
    ),
)
def latency(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder for the tables.")
    ],
    dc: DcOption = None,
    file: DatacentresOption = None,
    snapshot: SnapshotOption = None,
    journal: Annotated[
        list[str] | None,
        typer.Option(
            "--journal",
            metavar="SUBSCRIPTION=FILE",
            help="A subscriber's journal, written by `hermes sink --write`: "
            "'shop.orders$billing=taken.ndjson'; repeatable.",
        ),
    ] = None,
    topic: TopicsOption = None,
    master: MasterOption = "",
) -> None:
    """Report delivery latencies, and the surplus copies stored by hedging."""
    journals = [journal_of(each) for each in journal or []]
    taken = snapshot_of(snapshot, file, dc, lambda: session("hermes latency", master))
    require_topics(taken, "--topic", topic or [])
    require_topics(taken.only(topic) if topic else taken, "--journal", [j.topic for j in journals])
    spark = session("hermes latency", master)
    from hermes_spark.latency.job import latency as run

    output.mkdir(parents=True, exist_ok=True)
    taken.save(output / "snapshot.json")
    show(run(spark, taken, journals, output, topic, lambda line: print(line, flush=True)))
    print(f"tables: {output}")


def show(result: Result) -> None:
    """Print it for people."""
    show_rows(
        (
            "Topic",
            "Subscription",
            "Until",
            "DC",
            "Messages",
            "Known",
            "p50",
            "p95",
            "p99",
            "Max ms",
        ),
        [
            (
                *(each.topic, each.subscription, each.stage, each.dc or "all"),
                *_numbers(
                    each.messages, each.known, each.p50_ms, each.p95_ms, each.p99_ms, each.max_ms
                ),
            )
            for each in result.latencies
        ],
        "no latency is known",
    )
    print()
    show_rows(
        ("Topic", "Published in", "Messages", "Hedged", "%", "Rescued", "Doubled", "Surplus", "% "),
        [
            (
                *(each.topic, each.published_dc or "all"),
                *(*_numbers(each.messages, each.hedged), f"{each.hedge_percent:.2f}"),
                *(
                    *_numbers(each.rescued, each.doubled, each.surplus),
                    f"{each.surplus_percent:.2f}",
                ),
            )
            for each in result.hedging
        ],
        "no message has an id",
    )
    print()
    for each in result.repeated:
        print(
            f"{each.topic}${each.subscription}: {each.repetitions:,} repeated deliveries of "
            f"{each.messages:,} messages; {each.unmatched:,} of these are in no log of the snapshot"
            + (f"; {each.unreadable:,} lines cannot be read" if each.unreadable else "")
        )
    for sentence in result.unknown:
        print(f"not known: {sentence}")


def _numbers(*values: int | None) -> Sequence[str]:
    return ["-" if each is None else f"{each:,}" for each in values]
