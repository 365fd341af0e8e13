"""`hermes spark replay`: puts back the messages that a reconciliation found missing."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Annotated, Any

import httpx
import typer
from msgspec import Struct

from hermes_actors.cli.command_line.credentials import authorization, tls_context
from hermes_actors.cli.command_line.failures import CommandFailed, UsageWrong, warn
from hermes_actors.cli.command_line.options import (
    MANAGEMENT_URL_DEFAULT,
    MANAGEMENT_URL_VARIABLE,
    PUBLISH_URL_DEFAULT,
    PublishUrlOption,
)
from hermes_actors.cli.connection.management import ManagementClient
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
    rows_in_order,
    write_in_order,
)
from hermes_spark.replay.task import delete_task, records_for, task_of, wanted_by
from hermes_spark.session import session
from hermes_spark.snapshot import load_snapshot
from hermes_spark.sources import stored

JOURNAL = "replayed.ndjson"


def replay(
    report: Annotated[
        Path,
        typer.Argument(
            metavar="REPORT", help="The folder of a reconciliation; any folder with --task."
        ),
    ],
    which: Annotated[
        Which, typer.Option("--which", help="Lost messages, or unsettled ones.")
    ] = Which.LOST,
    ids: Annotated[
        Path | None,
        typer.Option("--ids", metavar="FILE", help="These ids, a line each; needs one --topic."),
    ] = None,
    topic: TopicsOption = None,
    subscription: Annotated[
        str,
        typer.Option(
            "--subscription", metavar="NAME", help="Only to this subscription: group.topic$name."
        ),
    ] = "",
    archive: Annotated[
        Path | None,
        typer.Option(
            "--archive", metavar="FOLDER", help="Read messages from it instead of the logs."
        ),
    ] = None,
    task: Annotated[
        str,
        typer.Option(
            "--task", metavar="ID", help="A task of offline retransmission; deleted when done."
        ),
    ] = "",
    management: Annotated[
        str,
        typer.Option(
            "--management",
            metavar="URL",
            envvar=MANAGEMENT_URL_VARIABLE,
            help="The management API, for --task.",
        ),
    ] = MANAGEMENT_URL_DEFAULT,
    rate: Annotated[
        float, typer.Option("--rate", metavar="N", help="Maximum messages per second.", min=0.001)
    ] = 100.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print their number and their source.")
    ] = False,
    publish_url: PublishUrlOption = PUBLISH_URL_DEFAULT,
    master: MasterOption = "",
) -> None:
    """Publish again, under their own ids, messages that are lost or not settled.

    The node at --publish-url must have frontend.replay. The report's folder gets replayed.ndjson
    with the replayed messages; if run again, the command continues after it. Exit code 1 if some
    messages could not be put back.
    """
    if task:
        if ids is not None or topic or subscription or archive is None:
            raise UsageWrong("--task selects the messages; give only --archive with it")
        with ManagementClient(management) as client:
            found_task = task_of(client, task)
            # A folder for each task: the same messages may be wanted by another one.
            asked = _Asked(report / task, which, None, [found_task.source_topic], "", "", archive)
            asked.report.mkdir(parents=True, exist_ok=True)
            spark = session("hermes replay", master)
            records = _records(spark, asked, None)
            wanted = wanted_by(found_task, records).cache()
            found = records_for(found_task, wanted, records)
            _replayed(asked, wanted, found, publish_url, rate, dry_run=dry_run)
            if not dry_run:
                delete_task(client, found_task)
        return
    asked = _asked(report, which, ids, topic or [], subscription, archive)
    spark = session("hermes replay", master)
    wanted = _wanted(spark, asked).cache()
    found = records_of(wanted, _records(spark, asked, wanted))
    missing = _replayed(asked, wanted, found, publish_url, rate, dry_run=dry_run)
    raise typer.Exit(1 if missing else 0)


def _replayed(
    asked: "_Asked", wanted: Any, found: Any, publish_url: str, rate: float, *, dry_run: bool
) -> int:
    """Publish the found records. Returns the number of messages that have none. Raises
    CommandFailed if one was not accepted.
    """
    if dry_run:
        return _missing(asked, wanted, found.count())
    report = asked.report
    with TemporaryDirectory(prefix="replay-", dir=report) as folder:
        kept = Path(folder) / "records"
        missing = _missing(asked, wanted, write_in_order(found, kept))
        tally = _published(asked, rows_in_order(kept), publish_url, rate, missing)
    if tally.failed:
        raise CommandFailed(
            f"{tally.failed:,} were not accepted; the reasons are in {report / JOURNAL}"
        )
    return missing


class _Asked(Struct, frozen=True):
    """Which messages are wanted, and from where. `only_for` is the name in `subscription`."""

    report: Path
    which: Which
    ids: Path | None
    topics: list[str]
    subscription: str
    only_for: str
    archive: Path | None


def _asked(
    report: Path,
    which: Which,
    ids: Path | None,
    topics: list[str],
    subscription: str,
    archive: Path | None,
) -> _Asked:
    """Parse the options. Raises UsageWrong if they do not fit together."""
    only_for = ""
    if subscription:
        name = SubscriptionName.parse(subscription)
        only_for = name.name
        if topics and topics != [str(name.topic)]:
            raise UsageWrong(f"--subscription has the topic, {name.topic}; leave out --topic")
        topics = [str(name.topic)]
    if ids is not None and len(topics) != 1:
        raise UsageWrong("--ids needs the topic of the ids: give --topic or --subscription")
    if ids is None and which is Which.LOST and archive is None:
        raise UsageWrong("lost messages are in no log; give the archive that has them: --archive")
    if only_for:
        _look_for(subscription, report)
    return _Asked(report, which, ids, topics, subscription, only_for, archive)


def _wanted(spark: Any, asked: _Asked) -> Any:
    if asked.ids is not None:
        return of_ids(spark, asked.ids, asked.topics[0])
    wanted = named(spark, asked.report, asked.which, asked.subscription)
    return wanted.where(wanted["topic"].isin(*asked.topics)) if asked.topics else wanted


def _records(spark: Any, asked: _Asked, wanted: Any) -> Any:
    """Read the records of the archive or the logs that may be wanted."""
    if asked.archive is not None:
        held = lives(topics_of(asked.archive), asked.topics) if asked.topics else None
        return archived(spark, asked.archive, held, COLUMNS)
    snapshot = load_snapshot(asked.report / "snapshot.json")
    names = [row.topic for row in wanted.select("topic").distinct().collect()]
    return stored(spark, snapshot, topics=lives_in(snapshot, names), columns=COLUMNS)


def _missing(asked: _Asked, wanted: Any, found: int) -> int:
    """Print how many messages are wanted and found. Return how many are missing."""
    by_topic = {row.topic: row["count"] for row in wanted.groupBy("topic").count().collect()}
    count: int = sum(by_topic.values())
    place = f"the archive {asked.archive}" if asked.archive is not None else "the logs"
    print(f"{count:,} messages to put back, {found:,} of them in {place}")
    for topic, messages in sorted(by_topic.items()):
        print(f"  {topic}: {messages:,}")
    return count - found


def _published(
    asked: _Asked,
    rows: Iterator[dict[str, Any]],
    publish_url: str,
    rate_per_s: float,
    missing: int,
) -> Tally:
    """Publish the messages, and print how many were published, also if interrupted."""
    tally = Tally()
    headers = {"Authorization": shown} if (shown := authorization()) else {}
    tls = tls_context()
    with (
        _journal(asked.report) as journal,
        httpx.Client(
            headers=headers, timeout=TIMEOUT_S, trust_env=False, verify=tls or True
        ) as client,
    ):
        replayer = Replayer(
            client, publish_url, journal, rate_per_s, asked.only_for, SystemClock(), Event().wait
        )
        try:
            replayer.run(candidates(rows, asked.only_for), tally)
        finally:
            before = f", {tally.before:,} already before" if tally.before else ""
            print(f"put back {tally.replayed:,}{before}, not put back {tally.failed + missing:,}")
            for topic, why in tally.refused.items():
                print(f"  {topic} accepts none: {why}")
    return tally


def _look_for(subscription: str, report: Path) -> None:
    taken = report / "snapshot.json"
    if not taken.exists():
        return
    known = {f"{each.topic}${each.name}" for each in subscriptions_of(load_snapshot(taken))}
    if subscription not in known:
        warn(
            f"{report} has no subscription {subscription}: if it does not exist, nobody gets the "
            "messages that are put back for it"
        )


def _journal(report: Path) -> Journal:
    taken = report / "snapshot.json"
    try:
        # Messages missed by a later reconciliation are sent again, even if they were put back
        # before it.
        return Journal(report / JOURNAL, load_snapshot(taken).taken_at_ms if taken.exists() else 0)
    except BlockingIOError as error:
        raise CommandFailed(
            f"another replay of {report} is under way; wait until it ends"
        ) from error
    except ValueError as error:
        raise CommandFailed(f"{error}; move it away") from error
