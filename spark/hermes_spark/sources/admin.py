"""Reads a Kafka cluster's topics, offsets and commits through the JVM's Kafka client."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from hermes_spark.snapshot import Committed, KafkaLog, PartitionRange
from hermes_spark.sources.failures import SourceFailed
from hermes_spark.sources.kafka import ISOLATION, client_options

TIMEOUT_MS = 30_000
_INTERNAL_PREFIX = "__"
"""Prefix of Kafka's internal topics."""


class KafkaAdmin:
    """Queries one cluster. All methods raise SourceFailed if there is no answer within 30 s."""

    def __init__(self, jvm: Any, client: Any, servers: str, isolation: str) -> None:
        self._jvm = jvm
        self._client = client
        self._servers = servers
        self._isolation = isolation

    def topics(self) -> list[str]:
        """The names of all topics except Kafka's internal ones."""
        names = self._answer(lambda: self._client.listTopics().names().get())
        return sorted(str(name) for name in names if not name.startswith(_INTERNAL_PREFIX))

    def ranges(self, topics: Iterable[str]) -> dict[str, list[PartitionRange]]:
        """The current offsets of each topic; topics deleted in the meantime are left out."""
        wanted = self._jvm.java.util.ArrayList()
        for topic in topics:
            wanted.add(topic)
        if not wanted:
            return {}
        described = self._answer(lambda: self._present(wanted))
        places = [
            self._jvm.org.apache.kafka.common.TopicPartition(topic, each.partition())
            for topic, description in described.items()
            for each in description.partitions()
        ]
        spec = self._jvm.org.apache.kafka.clients.admin.OffsetSpec
        # Read the ends last, so that they are not below the starts.
        starts = self._positions(places, spec.earliest())
        ends = self._positions(places, spec.latest())
        found: dict[str, list[PartitionRange]] = {str(topic): [] for topic in described}
        for topic, partition in sorted(ends):
            start, end = starts[topic, partition], ends[topic, partition]
            found[topic].append(PartitionRange(partition, start, max(start, end)))
        return found

    def _present(self, topics: Any) -> dict[str, Any]:
        from py4j.protocol import Py4JJavaError

        answers = self._client.describeTopics(topics).topicNameValues()
        found = {}
        for topic in topics:
            try:
                found[str(topic)] = answers[topic].get()
            except Py4JJavaError as error:
                cause = error.java_exception.getCause()
                if cause.getClass().getSimpleName() != "UnknownTopicOrPartitionException":
                    raise
        return found

    def _positions(self, places: Iterable[Any], spec: Any) -> dict[tuple[str, int], int]:
        kafka, wanted = self._jvm.org.apache.kafka, self._jvm.java.util.HashMap()
        for place in places:
            wanted.put(place, spec)
        level = kafka.common.IsolationLevel.valueOf(self._isolation.upper())
        asked = kafka.clients.admin.ListOffsetsOptions(level)
        answer = self._answer(lambda: self._client.listOffsets(wanted, asked).all().get())
        return {
            (str(entry.getKey().topic()), int(entry.getKey().partition())): int(
                entry.getValue().offset()
            )
            for entry in answer.entrySet()
        }

    def commits(self) -> dict[str, dict[str, list[Committed]]]:
        """The commits of all consumer groups, by group and topic."""
        listed = self._answer(lambda: self._client.listConsumerGroups().all().get())
        groups = sorted(str(each.groupId()) for each in listed)
        if not groups:
            return {}
        wanted = self._jvm.java.util.HashMap()
        spec = self._jvm.org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec
        for group in groups:
            wanted.put(group, spec())
        answer = self._answer(lambda: self._client.listConsumerGroupOffsets(wanted).all().get())
        return {group: _by_topic(answer[group]) for group in groups}

    def _answer(self, ask: Callable[[], Any]) -> Any:
        from py4j.protocol import Py4JJavaError

        try:
            return ask()
        except Py4JJavaError as error:
            cause = error.java_exception.getCause() or error.java_exception
            raise SourceFailed(
                f"Kafka at {self._servers} does not answer: "
                f"{cause.getClass().getSimpleName()}: {cause.getMessage()}; check that it runs, "
                "and the client's options"
            ) from error


@contextmanager
def kafka_admin(spark: Any, log: KafkaLog) -> Iterator[KafkaAdmin]:
    """A query client for that cluster. Raises SourceFailed if the client's options are wrong."""
    from py4j.protocol import Py4JJavaError

    jvm = spark.sparkContext._jvm
    options = jvm.java.util.Properties()
    found = dict(client_options(log))
    isolation = found.pop(ISOLATION)
    for name, value in found.items():
        options.put(name, value)
    for name in ("request.timeout.ms", "default.api.timeout.ms"):
        if not options.containsKey(name):
            options.put(name, str(TIMEOUT_MS))
    try:
        client = jvm.org.apache.kafka.clients.admin.AdminClient.create(options)
    except Py4JJavaError as error:
        # The error's text names options; the causes' texts may contain their values.
        raise SourceFailed(
            f"Kafka's client cannot be made for {log.bootstrap_servers}: "
            f"{error.java_exception.getClass().getSimpleName()}; check the servers' names and "
            f"{log.client_properties or 'the options'}"
        ) from error
    try:
        yield KafkaAdmin(jvm, client, log.bootstrap_servers, isolation)
    finally:
        client.close(jvm.java.time.Duration.ofSeconds(5))


def _by_topic(offsets: Any) -> dict[str, list[Committed]]:
    found: dict[str, list[Committed]] = {}
    for entry in offsets.entrySet():
        place, commit = entry.getKey(), entry.getValue()
        # A group may list a partition without a position.
        if commit is not None:
            found.setdefault(str(place.topic()), []).append(
                Committed(int(place.partition()), int(commit.offset()), str(commit.metadata()))
            )
    return {
        topic: sorted(commits, key=lambda each: each.partition)
        for topic, commits in sorted(found.items())
    }
