"""A snapshot: the exact offsets of all datacentres' logs, and what is settled, at one moment, as
JSON.

A job reads only what its snapshot lists, so a run can be repeated while messages keep coming.
"""

from collections.abc import Collection
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes_actors.model.names import RESERVED_GROUP
from hermes_local.failures import LaunchFailed

DEAD_LETTERS_PREFIX = f"{RESERVED_GROUP}.dlq."


class PartitionRange(Struct, frozen=True):
    """The offsets of a partition from `start` up to below `end`."""

    partition: int
    start: int
    end: int


class Committed(Struct, frozen=True):
    """A consumer group's commit; `hermes_actors.log.commits.decode` parses the metadata."""

    partition: int
    position: int
    metadata: str = ""


class KafkaLog(Struct, frozen=True, tag="kafka", tag_field="kind"):
    """A Kafka cluster. `client_properties` is the path of a file with client options, such as TLS
    and SASL. Only the path is kept in the snapshot, not its content.
    """

    bootstrap_servers: str
    client_properties: str = ""


class EmbeddedLog(Struct, frozen=True, tag="embedded", tag_field="kind"):
    """An embedded log, by its folder."""

    folder: str


class Datacentre(Struct, frozen=True):
    """One datacentre's log: the ranges of its topics, by name without the namespace, and the
    commits of its consumer groups, by group and topic.
    """

    log: KafkaLog | EmbeddedLog
    namespace: str = ""
    namespace_separator: str = "_"
    topics: dict[str, list[PartitionRange]] = {}
    groups: dict[str, dict[str, list[Committed]]] = {}

    @property
    def topic_prefix(self) -> str:
        """The prefix of topic names in the log. Empty string without a namespace."""
        return f"{self.namespace}{self.namespace_separator}" if self.namespace else ""

    @property
    def records(self) -> int:
        """The number of offsets in all ranges, which is at least the number of records."""
        return sum(each.end - each.start for ranges in self.topics.values() for each in ranges)


class Snapshot(Struct, frozen=True):
    """All datacentres by name, read from `taken_at_ms` on (Unix epoch).

    Commits are read first, then the dead letters, then all other topics, each in all datacentres
    before the next. So whatever a commit or a dead letter refers to was stored before its topic's
    end was read, and is within the ranges: nothing is settled here that is not stored. The reverse
    is normal: a message that came in between is stored, but not settled yet.
    """

    taken_at_ms: int
    datacentres: dict[str, Datacentre]

    def only(self, topics: Collection[str]) -> "Snapshot":
        """The snapshot without other topics; the groups stay."""
        return msgspec.structs.replace(
            self,
            datacentres={
                name: msgspec.structs.replace(
                    each,
                    topics={
                        topic: each.topics[topic]
                        for topic in sorted(each.topics.keys() & set(topics))
                    },
                )
                for name, each in self.datacentres.items()
            },
        )

    def save(self, path: Path) -> None:
        """Write it as JSON. Raises OSError."""
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self, order="sorted"), indent=1))


def load_snapshot(path: Path) -> Snapshot:
    """The inverse of `Snapshot.save`. Raises LaunchFailed if it is not a snapshot, and OSError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Snapshot)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LaunchFailed(
            f"{path} is not a snapshot: {error}; take one with `hermes spark snapshot`"
        ) from error
