"""Takes a snapshot: all datacentres are asked for one thing before any is asked for the next."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any

import msgspec

from hermes_spark.snapshot import (
    DEAD_LETTERS_PREFIX,
    Committed,
    Datacentre,
    EmbeddedLog,
    PartitionRange,
    Snapshot,
)
from hermes_spark.sources.admin import KafkaAdmin, kafka_admin
from hermes_spark.sources.embedded_file import EmbeddedFile

_Look = KafkaAdmin | EmbeddedFile


def take_snapshot(
    datacentres: Mapping[str, Datacentre], taken_at_ms: int, session: Callable[[], Any]
) -> Snapshot:
    """Take a snapshot of what these datacentres hold and have settled, in the order that `Snapshot`
    describes.

    `session` returns the Spark session whose JVM queries Kafka; it is not called if all logs are
    embedded. `taken_at_ms` is the time before the call. Raises SourceFailed if a datacentre cannot
    be queried: a snapshot without it would show all its messages as lost.
    """
    with ExitStack() as stack:
        looks: dict[str, _Look] = {}
        for name, each in datacentres.items():
            if isinstance(each.log, EmbeddedLog):
                looks[name] = EmbeddedFile(each.log.folder)
            else:
                looks[name] = stack.enter_context(kafka_admin(session(), each.log))
        commits = {name: look.commits() for name, look in looks.items()}
        names = {name: _named(look.topics(), datacentres[name]) for name, look in looks.items()}
        letters = {
            name: looks[name].ranges(
                [own for own, plain in names[name].items() if plain.startswith(DEAD_LETTERS_PREFIX)]
            )
            for name in looks
        }
        # Listed again, because a topic created after the commits were read may have messages
        # already. Dead-letter topics created since are left out, because they may refer to later
        # messages.
        names = {name: _named(look.topics(), datacentres[name]) for name, look in looks.items()}
        others = {
            name: looks[name].ranges(
                [
                    own
                    for own, plain in names[name].items()
                    if not plain.startswith(DEAD_LETTERS_PREFIX)
                ]
            )
            for name in looks
        }
    return Snapshot(
        taken_at_ms,
        {
            name: msgspec.structs.replace(
                each,
                topics=_plain(letters[name] | others[name], names[name]),
                groups=_groups(commits[name], names[name], each.namespace),
            )
            for name, each in datacentres.items()
        },
    )


def _named(topics: Iterable[str], datacentre: Datacentre) -> dict[str, str]:
    """The topics in the namespace: the log's name → the name without the namespace."""
    prefix = datacentre.topic_prefix
    return {own: own.removeprefix(prefix) for own in topics if own.startswith(prefix)}


def _plain(
    ranges: Mapping[str, list[PartitionRange]], names: Mapping[str, str]
) -> dict[str, list[PartitionRange]]:
    return {names[own]: ranges[own] for own in sorted(ranges) if own in names}


def _groups(
    commits: Mapping[str, Mapping[str, list[Committed]]], names: Mapping[str, str], namespace: str
) -> dict[str, dict[str, list[Committed]]]:
    """The groups in the namespace that have commits in its topics."""
    prefix = f"{namespace}_" if namespace else ""
    found = {
        group: {names[own]: places for own, places in topics.items() if own in names}
        for group, topics in sorted(commits.items())
        if group.startswith(prefix)
    }
    return {group: topics for group, topics in found.items() if topics}
