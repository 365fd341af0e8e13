"""`hermes spark replay`: put back what a reconciliation found missing."""

from pathlib import Path
from threading import Event
from typing import Annotated

import httpx
import typer

from hermes_actors.cli.command_line.credentials import authorization, tls_context
from hermes_actors.cli.command_line.failures import CommandFailed, UsageWrong, warn
from hermes_actors.cli.command_line.options import PUBLISH_URL_DEFAULT, PublishUrlOption
from hermes_actors.model.names import SubscriptionName
from hermes_actors.runtime.clock import SystemClock
from hermes_spark.archive import archived
from hermes_spark.archive.layout import topics_of
from hermes_spark.lives import lives, lives_in
from hermes_spark.options import MasterOption, TopicsOption
from hermes_spark.reconcile.settled import subscriptions_of
from hermes_spark.replay.journal import Journal
from hermes_spark.replay.publishing import TIMEOUT_S, Replayer, Tally
from hermes_spark.replay.selection import (
    COLUMNS,
    Which,
    candidates,
    named,
    of_ids,
    records_of,
)
from hermes_spark.session import session
from hermes_spark.snapshot import load_snapshot
from hermes_spark.sources import stored

JOURNAL = "replayed.ndjson"


def replay(
    report: Annotated[
        Path, typer.Argument(metavar="REPORT", help="The folder of a reconciliation.")
    ],
    which: Annotated[
        Which, typer.Option("--which", help="What is lost, or what is not settled.")
    ] = Which.LOST,
    ids: Annotated[
        Path | None,
        typer.Option("--ids", metavar="FILE", help="These ids, a line each; needs one --topic."),
    ] = None,
    topic: TopicsOption = None,
    subscription: Annotated[
        str,
        typer.Option(
            "--subscription", metavar="NAME", help="To this subscription alone: group.topic$name."
        ),
    ] = "",
    archive: Annotated[
        Path | None,
        typer.Option(
            "--archive", metavar="FOLDER", help="Take the messages from it, not from the logs."
        ),
    ] = None,
    rate: Annotated[
        float, typer.Option("--rate", metavar="N", help="Messages a second, at most.", min=0.001)
    ] = 100.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say how many there are, and from where.")
    ] = False,
    publish_url: PublishUrlOption = PUBLISH_URL_DEFAULT,
    master: MasterOption = "",
) -> None:
    """Publish again, under its own id, what is lost or not settled.

    The node at --publish-url must have frontend.replay. What was put back is in the report's
    folder, in replayed.ndjson: run again, the command goes on after it. Ends with 1 when some of it
    could not be put back.
    """
    topics = list(topic or [])
    only_for = ""
    if subscription:
        name = SubscriptionName.parse(subscription)
        only_for = name.name
        if topics and topics != [str(name.topic)]:
            raise UsageWrong(f"--subscription says the topic, {name.topic}; leave out --topic")
        topics = [str(name.topic)]
    if ids is not None and len(topics) != 1:
        raise UsageWrong("--ids needs the one topic of the ids: --topic, or --subscription")
    if ids is None and which is Which.LOST and archive is None:
        raise UsageWrong("what is lost is in no log; name the archive that holds it: --archive")
    if only_for:
        _look_for(subscription, report)
    spark = session("hermes replay", master)
    if ids is not None:
        wanted = of_ids(spark, ids, topics[0])
    else:
        wanted = named(spark, report, which, subscription)
        if topics:
            wanted = wanted.where(wanted["topic"].isin(*topics))
    wanted = wanted.cache()
    if archive is not None:
        held = lives(topics_of(archive), topics) if topics else None
        records = archived(spark, archive, held, COLUMNS)
    else:
        snapshot = load_snapshot(report / "snapshot.json")
        names = [row.topic for row in wanted.select("topic").distinct().collect()]
        held = lives_in(snapshot, names)
        records = stored(spark, snapshot, topics=held, columns=COLUMNS)
    found = records_of(wanted, records).cache()
    count, held_count = wanted.count(), found.count()
    place = f"the archive {archive}" if archive is not None else "the logs"
    print(f"{count:,} messages to put back, {held_count:,} of them in {place}")
    for row in wanted.groupBy("topic").count().orderBy("topic").collect():
        print(f"  {row.topic}: {row['count']:,}")
    missing = count - held_count
    if dry_run:
        raise typer.Exit(1 if missing else 0)
    tally = Tally()
    headers = {"Authorization": shown} if (shown := authorization()) else {}
    tls = tls_context()
    with (
        _journal(report) as journal,
        httpx.Client(
            headers=headers, timeout=TIMEOUT_S, trust_env=False, verify=tls or True
        ) as client,
    ):
        replayer = Replayer(
            client, publish_url, journal, rate, only_for, SystemClock(), Event().wait
        )
        try:
            replayer.run(candidates(found, only_for), tally)
        finally:
            before = f", {tally.before:,} were before" if tally.before else ""
            print(f"put back {tally.replayed:,}{before}, not {tally.failed + missing:,}")
    if tally.failed:
        raise CommandFailed(f"{tally.failed:,} were not taken; why stands in {report / JOURNAL}")
    raise typer.Exit(1 if missing else 0)


def _look_for(subscription: str, report: Path) -> None:
    taken = report / "snapshot.json"
    if not taken.exists():
        return
    known = {f"{each.topic}${each.name}" for each in subscriptions_of(load_snapshot(taken))}
    if subscription not in known:
        warn(
            f"{report} knows nothing of a subscription {subscription}: if there is none, nobody "
            "gets what is put back for it"
        )


def _journal(report: Path) -> Journal:
    taken = report / "snapshot.json"
    try:
        # What a later reconciliation misses is sent again, whatever was put back before it.
        return Journal(report / JOURNAL, load_snapshot(taken).taken_at_ms if taken.exists() else 0)
    except BlockingIOError as error:
        raise CommandFailed(f"another replay of {report} is under way; wait for its end") from error
    except ValueError as error:
        raise CommandFailed(f"{error}; move it away") from error
