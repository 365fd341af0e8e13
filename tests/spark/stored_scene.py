"""Records on which readers must agree, and logs that hold them."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from hermes_actors.config import KafkaClusterConfig, KafkaConfig
from hermes_actors.log.base import Commit, TopicSettings
from hermes_actors.log.embedded.opening import open_store
from hermes_actors.log.kafka.log import open_kafka_log
from hermes_actors.model.message import Envelope, Message, to_record
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_actors.runtime import guest
from hermes_actors.runtime.clock import SystemClock

T0_MS = 1_700_000_000_000


def native(number: int, via: str = "local", key: bytes | None = b"k") -> Record:
    return to_record(
        Message(f"id-{number}", b'{"n": %d}' % number, T0_MS + number, key, dc="dc2", via=via)
    )


def enveloped(body: bytes, message_id: str) -> Record:
    message = Message(message_id, body, T0_MS, None, (("traced", "yes"),))
    return to_record(message, Envelope.HERMES)


def without_header(record: Record, name: str) -> Record:
    headers = tuple(each for each in record.headers if each[0] != name)
    return Record(record.key, record.value, headers, record.timestamp_ms)


def foreign(value: bytes, *headers: tuple[str, bytes]) -> Record:
    return Record(None, value, headers, T0_MS)


ODD: list[tuple[Record, tuple[str | None, str | None, str | None]]] = [
    (native(1), ("id-1", "dc2", "local")),
    (native(2, "hedge", None), ("id-2", "dc2", "hedge")),
    (native(3, "spool", b""), ("id-3", "dc2", "spool")),
    (enveloped(b'{"a": 1}', "id-4"), ("id-4", None, None)),
    (without_header(enveloped(b'{"a": 1}', "id-5"), "id"), ("id-5", None, None)),
    (without_header(enveloped(b'}"not json, "id": 7', "id-6"), "id"), ("id-6", None, None)),
    (foreign(b"plain"), (None, None, None)),
    (foreign(b"", ("other", b"\xff")), (None, None, None)),
    (foreign(b"x", ("id", b"first"), ("id", b"last")), ("last", None, None)),
    (foreign(b"x", ("id", b"\xff"), ("dc", b""), ("via", b"local")), (None, None, "local")),
    (foreign(b"x", ("via", b"hedge"), ("dc", b"dc9"), ("id", b"i")), ("i", "dc9", "hedge")),
    (foreign(b"x", ("other", b"1"), ("id", b"a\x00b")), (None, None, None)),
    (foreign(b"x", ("other", b"1"), ("id", b"i" * 256)), (None, None, None)),
    (foreign(b"x", ("other", b"1"), ("id", b" i\n")), (None, None, None)),
    (foreign(b'{"_w":true, "other": 1}'), (None, None, None)),
    (foreign(b"x", ("id", "żółw".encode()), ("dc", b"d"), ("via", b"v")), ("żółw", "d", "v")),
]
"""Records, and the expected id (None: their place), publisher's datacentre and route."""

Topics = Mapping[str, Sequence[Sequence[Record]]]
"""The records of each partition of each topic."""


def fill_embedded(folder: Path, topics: Topics, *, chunk_records: int = 1_000) -> None:
    with closing(open_store(folder, accepts_damage=False)) as store:
        for topic, partitions in topics.items():
            store.begin()
            if topic not in store.topics:
                store.create_topic(topic, TopicSettings(partitions=len(partitions)))
            store.commit()
            for number, records in enumerate(partitions):
                for at in range(0, len(records), chunk_records):
                    store.begin()
                    store.append(topic, number, records[at : at + chunk_records], 0, 0.0)
                    store.flush()
                    store.commit()


def commit_embedded(folder: Path, group: str, topic: str, commits: Mapping[int, Commit]) -> None:
    with closing(open_store(folder, accepts_damage=False)) as store:
        store.begin()
        store.put_commits(group, topic, commits)
        store.commit()


def fill_kafka(servers: Sequence[str], prefix: str, topics: Topics, **commits: int) -> None:
    """Create and fill the topics. `commits` are positions of partition 0 of the first topic, by
    group.
    """

    async def fill() -> None:
        settings = KafkaConfig(request_timeout_ms=30_000, append_timeout_ms=30_000)
        cluster = KafkaClusterConfig(list(servers))
        async with open_kafka_log("dc1", cluster, settings, SystemClock()) as log:
            for topic, partitions in topics.items():
                await log.topics.create(prefix + topic, TopicSettings(partitions=len(partitions)))
                for number, records in enumerate(partitions):
                    if records:
                        await log.append(prefix + topic, number, records, Ack.ALL)
            for group, position in commits.items():
                await log.commit(group, prefix + next(iter(topics)), {0: Commit(position, "m")})

    guest.run(fill)
