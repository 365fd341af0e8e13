"""`hermes spark archive …`: append to an archive, compact it, expire it, show its contents."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from hermes_actors.cli.command_line.failures import EXIT_FAILED, UsageWrong, warn
from hermes_actors.cli.command_line.options import JsonOption, examples
from hermes_actors.cli.command_line.plain import PlainCommand, command_group
from hermes_actors.model.moments import span_ms
from hermes_actors.model.names import RESERVED_GROUP
from hermes_actors.runtime.clock import SystemClock
from hermes_spark.archive import append as appending
from hermes_spark.archive.commits import load_manifest, open_archive
from hermes_spark.archive.compaction import compact as compacted_hours
from hermes_spark.archive.contents import contents, show
from hermes_spark.archive.expiry import expire as expired_topics
from hermes_spark.archive.manifest import Faced
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
from hermes_spark.snapshot import DEAD_LETTERS_PREFIX, Snapshot

app = command_group("Keep all datacentres' topics as Parquet, each record exactly once.")

FolderArgument = Annotated[Path, typer.Argument(metavar="FOLDER", help="The archive's folder.")]


@app.command(
    cls=PlainCommand,
    epilog=examples(
        "hermes spark archive append archive --dc dc1=embedded:data/dc1 --dc dc2=embedded:data/dc2",
        "hermes spark archive append /srv/archive --datacentres dcs.toml --topic shop.orders",
        "hermes spark archive append archive --snapshot now.json",
    ),
)
def append(
    folder: FolderArgument,
    dc: DcOption = None,
    file: DatacentresOption = None,
    snapshot: SnapshotOption = None,
    topic: TopicsOption = None,
    batch_offsets: Annotated[
        int,
        typer.Option(
            "--batch-offsets",
            metavar="NUMBER",
            min=1,
            help="Maximum number of offsets in one commit.",
        ),
    ] = appending.BATCH_OFFSETS,
    master: MasterOption = "",
) -> None:
    """Archive the records of the logs that the archive lacks; creates the archive if necessary.

    Exit code 1 if a log no longer held all of them; the missing offsets are printed and recorded.
    """
    now_ms = SystemClock().now_ms()
    spark = partial(session, "hermes archive", master)
    with open_archive(folder, now_ms) as archive:
        # Taken while this process holds the archive, so no manifest is newer than this snapshot.
        taken = _of_topics(snapshot_of(snapshot, file, dc, spark), topic)
        found = appending.append(spark, archive, taken, batch_offsets, _tell)
        total = sum(
            each.records for topics in archive.manifest.topics.values() for each in topics.values()
        )
    print(f"archive: {folder}: {total:,} records archived in all")
    if _warn(found):
        raise typer.Exit(EXIT_FAILED)


def _of_topics(snapshot: Snapshot, names: list[str] | None) -> Snapshot:
    """The snapshot with these topics; None means all but the broker's own. Dead letters
    are kept.
    """
    if names:
        require_topics(snapshot, "--topic", names)
        return snapshot.only(names)
    held = {name for each in snapshot.datacentres.values() for name in each.topics}
    own = f"{RESERVED_GROUP}."
    return snapshot.only(
        {name for name in held if not name.startswith(own) or name.startswith(DEAD_LETTERS_PREFIX)}
    )


def _tell(progress: appending.Progress) -> None:
    print(f"{progress.offsets:,} of {progress.offsets_total:,} offsets", flush=True)


def _warn(found: Faced) -> bool:
    """Print what was missed; True if something was."""
    for gap in found.gaps:
        warn(
            f"{gap.dc}: {gap.topic}/{gap.partition}: offsets {gap.gap.start} to {gap.gap.end - 1} "
            "are not in the archive: retention removed them before this run; archive more often"
        )
    for each in found.shorter:
        warn(
            f"{each.dc}: {each.topic}/{each.partition} ends at {each.log_end}, but is archived up "
            f"to {each.archived_end}: the topic was created again, or the log has lost its end; "
            "from now on archive it into another folder"
        )
    return bool(found.gaps or found.shorter)


@app.command(cls=PlainCommand, epilog=examples("hermes spark archive compact /srv/archive"))
def compact(folder: FolderArgument) -> None:
    """Merge the files of each past hour: one file for each topic and datacentre."""
    load_manifest(folder)
    now_ms = SystemClock().now_ms()
    with open_archive(folder, now_ms) as archive:
        count = sum(1 for _ in compacted_hours(archive, now_ms))
    print(f"compacted: {count:,} hours")


@app.command(cls=PlainCommand, epilog=examples("hermes spark archive expire archive --keep 90d"))
def expire(
    folder: FolderArgument,
    keep: Annotated[str, typer.Option("--keep", metavar="TIME", help="Age such as 90d, 12w, 36h.")],
) -> None:
    """Delete hours older than --keep, and record that in the manifest."""
    keep_ms = span_ms(keep)
    if keep_ms is None:
        raise UsageWrong(f"--keep '{keep}': expected a duration such as 90d, 12w or 36h")
    load_manifest(folder)
    now_ms = SystemClock().now_ms()
    with open_archive(folder, now_ms) as archive:
        for each in expired_topics(archive, now_ms - keep_ms):
            print(f"{each.topic}: deleted {each.hours:,} hours, {each.records:,} records")
    print(f"kept: everything younger than {keep}")


@app.command(
    "show",
    cls=PlainCommand,
    epilog=examples(
        "hermes spark archive show archive", "hermes spark archive show archive --json"
    ),
)
def show_contents(folder: FolderArgument, as_json: JsonOption = False) -> None:
    """Show how far each topic is archived, what is missing, and its size."""
    show(contents(folder), as_json)
