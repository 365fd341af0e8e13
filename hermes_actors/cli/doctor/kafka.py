"""The verdicts on a Kafka cluster, by what a node needs of it. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from hermes_actors.cli.doctor.diagnosis import Diagnosis, fine, odd, size_of, span_of, wrong
from hermes_actors.cli.output.render import counted, listed
from hermes_actors.config import KafkaConfig
from hermes_actors.log.base import TopicSettings
from hermes_actors.log.kafka.settings import BATCH_OVERHEAD_BYTES
from hermes_actors.log.kafka.survey import BrokerSeen, ClusterSeen, TopicSeen

CHECK = "kafka"

_NO_TOPIC = "UnknownTopicOrPartition"
_NOT_PERMITTED = "Authorization"
_NAMED_MAX = 3
_FETCHES = ((18, "4.1"), (17, "3.9"), (16, "3.7"), (15, "3.5"), (13, "3.1"), (12, "2.7"))
"""The version of Kafka in which that version of the request was new."""


def judge_cluster(
    seen: ClusterSeen, kafka: KafkaConfig, own_topics: Mapping[str, TopicSettings]
) -> Iterator[Diagnosis]:
    """All lines for one cluster, as far as it has been looked at."""
    about = f"Kafka of {seen.dc}"
    yield from _bootstrap(seen, about)
    if seen.brokers:
        yield from _brokers(seen.brokers, kafka, about)
        yield _creation(seen.creation_trouble, kafka, about)
        yield from _topics(seen, kafka, own_topics, about)
    elif seen.trouble and not all(each.trouble for each in seen.bootstrap):
        yield wrong(CHECK, about, seen.trouble, "see the brokers' logs")
    if seen.stamps_trouble:
        is_refused = _is_refusal(seen.stamps_trouble)
        way_out = _permit("READ") if is_refused else "see the brokers' logs"
        yield wrong(CHECK, f"{about}, reading", seen.stamps_trouble, way_out)


def _bootstrap(seen: ClusterSeen, about: str) -> Iterator[Diagnosis]:
    field = f"kafka.clusters.{seen.dc}.bootstrap_servers"
    silent = [each for each in seen.bootstrap if each.trouble]
    for each in silent:
        of_all = wrong if len(silent) == len(seen.bootstrap) else odd
        trouble, _, way_out = each.trouble.partition("; ")
        way_out = way_out or f"start it, or mend {field}"
        yield of_all(CHECK, f"{about}, {each.address}", trouble, way_out)
    works = [each.address for each in seen.bootstrap if not each.trouble]
    if works:
        yield fine(CHECK, about, f"{listed(works, _NAMED_MAX)} takes connections and log-in")


def _brokers(brokers: Sequence[BrokerSeen], kafka: KafkaConfig, about: str) -> Iterator[Diagnosis]:
    for each in brokers:
        where = f"{about}, broker {each.node}"
        if each.trouble:
            yield wrong(
                CHECK,
                where,
                f"it is told to be at {each.address}, which cannot be used: {each.trouble}",
                "set the broker's advertised.listeners to an address that this machine reaches, or "
                "start it",
            )
        if each.lacking:
            yield wrong(
                CHECK,
                where,
                f"it does not know {listed(each.lacking, _NAMED_MAX)}",
                "take Kafka 2.7 or newer",
            )
        if _is_refusal(each.configs_trouble):
            yield odd(
                CHECK, where, "its settings may not be seen", _permit("DESCRIBE_CONFIGS", "cluster")
            )
    there = [each for each in brokers if not each.trouble]
    if there:
        versions = {_version(each.fetch_version) for each in there}
        text = f"{counted(len(there), 'broker')} of {len(brokers)} can be used"
        yield fine(CHECK, f"{about}, brokers", f"{text}, Kafka {' and '.join(sorted(versions))}")
    if len(brokers) < kafka.replication_factor:
        yield wrong(
            CHECK,
            f"{about}, brokers",
            f"{len(brokers)} are up, and new topics want kafka.replication_factor "
            f"{kafka.replication_factor}",
            "start more brokers, or lower kafka.replication_factor",
        )


def _version(fetch_version: int) -> str:
    found = next((name for least, name in _FETCHES if fetch_version >= least), "")
    return f"{found} or newer" if found else "before 2.7"


def _creation(trouble: str | None, kafka: KafkaConfig, about: str) -> Diagnosis:
    where = f"{about}, creating topics"
    if trouble is None:
        return odd(CHECK, where, "no answer", "see the brokers' logs")
    if not trouble:
        return fine(
            CHECK, where, f"permitted, with replication factor {kafka.replication_factor} (dry run)"
        )
    if _is_refusal(trouble):
        return wrong(CHECK, where, f"not permitted: {trouble}", _permit("CREATE"))
    return wrong(
        CHECK,
        where,
        trouble,
        "see kafka.replication_factor, kafka.min_insync_replicas, and the cluster's policies",
    )


def _is_refusal(trouble: str) -> bool:
    return _NOT_PERMITTED.lower() in trouble.lower() or "authorized" in trouble.lower()


def _topics(
    seen: ClusterSeen, kafka: KafkaConfig, wanted: Mapping[str, TopicSettings], about: str
) -> Iterator[Diagnosis]:
    there = [each for each in seen.own_topics if _NO_TOPIC not in each.trouble]
    found: list[Diagnosis] = []
    for each in there:
        where = f"{about}, topic {each.name}"
        settings = wanted.get(each.name)
        found += _topic(each, kafka, where)
        if settings is not None and each.configs:
            found += _settings(each, settings, where)
    yield from found
    if seen.own_topics and not there:
        yield fine(CHECK, f"{about}, topics", "none of hermes yet: a start makes them")
    elif there and not found:
        names = [each.name for each in there]
        yield fine(CHECK, f"{about}, topics", f"{listed(names, _NAMED_MAX)}: as a node needs them")
    ill = [each.name for each in seen.other_topics if each.leaderless]
    if ill:
        yield odd(
            CHECK,
            f"{about}, other topics",
            f"{counted(len(ill), 'topic')} with partitions without a leader: "
            f"{listed(ill, _NAMED_MAX)}",
            "start the brokers that hold them",
        )
    behind = [each.name for each in seen.other_topics if _is_short(each, kafka)]
    if behind:
        yield odd(
            CHECK,
            f"{about}, other topics",
            f"{counted(len(behind), 'topic')} with fewer replicas in sync than "
            f"kafka.min_insync_replicas ({kafka.min_insync_replicas}): "
            f"{listed(behind, _NAMED_MAX)}",
            "start the brokers that are away, or add replicas (kafka-reassign-partitions)",
        )


def _is_short(topic: TopicSeen, kafka: KafkaConfig) -> bool:
    return bool(topic.lagging) and topic.in_sync < kafka.min_insync_replicas


def _topic(topic: TopicSeen, kafka: KafkaConfig, where: str) -> Iterator[Diagnosis]:
    if topic.trouble:
        if _is_refusal(topic.trouble):
            yield wrong(
                CHECK, where, "not permitted", _permit("DESCRIBE, DESCRIBE_CONFIGS, READ, WRITE")
            )
        else:
            yield wrong(CHECK, where, topic.trouble, "see the brokers' logs")
        return
    start = "start the brokers that are away"
    configs = topic.configs
    least = int(configs.get("min.insync.replicas", kafka.min_insync_replicas))
    if topic.leaderless:
        seen = f"{topic.leaderless} of {topic.partitions} partitions have no leader"
        yield wrong(CHECK, where, seen, start)
    elif least > topic.replicas:
        yield wrong(
            CHECK,
            where,
            f"min.insync.replicas {least} is above its {topic.replicas} replicas: nothing can be "
            "stored with ack ALL",
            _alter(topic, f"min.insync.replicas={topic.replicas}"),
        )
    elif topic.in_sync < least:
        seen = f"{topic.in_sync} replicas are in sync, min.insync.replicas is {least}"
        yield wrong(CHECK, where, f"{seen}: nothing can be stored with ack ALL", start)
    elif topic.lagging:
        seen = f"{topic.lagging} of {topic.partitions} partitions have replicas that lag behind"
        yield odd(CHECK, where, seen, start)
    if topic.replicas < kafka.replication_factor:
        yield odd(
            CHECK,
            where,
            f"{topic.replicas} replicas, kafka.replication_factor is {kafka.replication_factor}",
            "add replicas (kafka-reassign-partitions)",
        )
    if least < kafka.min_insync_replicas:
        yield odd(
            CHECK,
            where,
            f"min.insync.replicas {least}, kafka.min_insync_replicas is "
            f"{kafka.min_insync_replicas}",
            _alter(topic, f"min.insync.replicas={kafka.min_insync_replicas}"),
        )
    if configs.get("unclean.leader.election.enable") == "true":
        yield odd(
            CHECK,
            where,
            "unclean.leader.election.enable=true: what was acknowledged may be lost",
            _alter(topic, "unclean.leader.election.enable=false"),
        )


def _settings(topic: TopicSeen, wanted: TopicSettings, where: str) -> Iterator[Diagnosis]:
    """Check the settings that a topic of hermes' own needs."""
    configs = topic.configs
    if configs.get("cleanup.policy", "delete") != "delete":
        yield wrong(
            CHECK,
            where,
            f"cleanup.policy={configs['cleanup.policy']} loses records that are to be kept",
            _alter(topic, "cleanup.policy=delete"),
        )
    retention_ms = int(configs.get("retention.ms", -1))
    wanted_ms = -1 if wanted.retention_ms is None else wanted.retention_ms
    if retention_ms >= 0 and (wanted_ms < 0 or retention_ms < wanted_ms):
        kept = "for ever" if wanted_ms < 0 else f"for {span_of(wanted_ms)}"
        yield wrong(
            CHECK,
            where,
            f"kept for {span_of(retention_ms)}, hermes needs its records {kept}",
            _alter(topic, f"retention.ms={wanted_ms}"),
        )
    if wanted_ms < 0 and int(configs.get("retention.bytes", -1)) >= 0:
        yield wrong(
            CHECK,
            where,
            f"retention.bytes={configs['retention.bytes']}, and hermes needs all its records",
            _alter(topic, "retention.bytes=-1"),
        )
    bytes_max = wanted.record_bytes_max + BATCH_OVERHEAD_BYTES
    if int(configs.get("max.message.bytes", bytes_max)) < bytes_max:
        yield wrong(
            CHECK,
            where,
            f"max.message.bytes is {size_of(int(configs['max.message.bytes']))}, hermes writes up "
            f"to {size_of(bytes_max)}",
            _alter(topic, f"max.message.bytes={bytes_max}"),
        )


def _alter(topic: TopicSeen, config: str) -> str:
    return (
        f"kafka-configs --alter --entity-type topics --entity-name {topic.name} "
        f"--add-config {config}"
    )


def _permit(operations: str, resource: str = "topics") -> str:
    return f"give the node's Kafka user ACLs on {resource}: {operations} (kafka-acls --add)"
