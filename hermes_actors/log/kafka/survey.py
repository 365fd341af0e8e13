"""A look at one Kafka cluster from outside, for whoever asks why it does not work: nothing is
created, changed or committed, and what one question does not learn the next one still may.

In trio, as the guest of an asyncio host.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import aiokafka.errors as kafka_errors
import msgspec
import trio
from aiokafka.protocol.admin import CreateTopicsRequest, DescribeConfigsRequest
from msgspec import Struct, field

from hermes_actors.config import KafkaClusterConfig, KafkaConfig
from hermes_actors.log.base import LogUnavailable, OffsetOutOfRange, UnknownTopic
from hermes_actors.log.kafka.brokers import FAILURES, Brokers
from hermes_actors.log.kafka.connection import KafkaCluster
from hermes_actors.log.kafka.positions import Positions
from hermes_actors.log.kafka.reader import open_reader
from hermes_actors.model.record import StoredRecord
from hermes_actors.runtime import guest
from hermes_actors.runtime.clock import Clock, system_rng

DRY_RUN_TOPIC = "_hermes.doctor-dry-run"
"""The topic whose creation is asked about, and not done."""

T = TypeVar("T")

# aiokafka's log-in asserts what it does not expect of a broker.
_LOGIN_FAILURES: tuple[type[Exception], ...] = (*FAILURES, AssertionError, ValueError)
_TOPIC, _BROKER = 2, 4
_NEEDED_REQUESTS = {
    0: "Produce",
    1: "Fetch",
    2: "ListOffsets",
    3: "Metadata",
    8: "OffsetCommit",
    9: "OffsetFetch",
    10: "FindCoordinator",
    19: "CreateTopics",
    20: "DeleteTopics",
    22: "InitProducerId",
    32: "DescribeConfigs",
    37: "CreatePartitions",
    44: "IncrementalAlterConfigs",
}
_FETCH = 1
_TOPIC_CONFIGS = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "max.message.bytes",
    "message.timestamp.type",
    "min.insync.replicas",
    "unclean.leader.election.enable",
)
_BROKER_CONFIGS = ("min.insync.replicas", "message.max.bytes", "socket.request.max.bytes")
_BEFORE_THE_END = 50
_RECORDS_MAX = 200
_BYTES_MAX = 4_194_304


class BrokerSeen(Struct, kw_only=True):
    """One address of the cluster. `trouble` says why it cannot be used, "" when it can;
    `fetch_version` is the highest of that request, by which versions of Kafka differ.
    """

    address: str
    node: int | None = None
    trouble: str = ""
    fetch_version: int = 0
    lacking: list[str] = field(default_factory=list)
    configs: dict[str, str] = field(default_factory=dict)
    configs_trouble: str = ""


class TopicSeen(Struct, kw_only=True):
    """One topic. `trouble` is Kafka's error; the counts are of partitions: all, without a leader,
    with fewer replicas in sync than there are, and those in sync where they are fewest.
    """

    name: str
    trouble: str = ""
    partitions: int = 0
    leaderless: int = 0
    lagging: int = 0
    replicas: int = 0
    in_sync: int = 0
    configs: dict[str, str] = field(default_factory=dict)


class Stamp(Struct, frozen=True):
    """A record and when it came, by this machine's clock; None: it lay there before."""

    stored: StoredRecord
    arrived_ms: int | None


class ClusterSeen(Struct, kw_only=True):
    """All that was learned so far; fields keep their defaults where nothing was.

    `creation_trouble` is why no topic could be made, "" when one could; None: not known.
    """

    dc: str
    trouble: str = ""
    bootstrap: list[BrokerSeen] = field(default_factory=list)
    brokers: list[BrokerSeen] = field(default_factory=list)
    own_topics: list[TopicSeen] = field(default_factory=list)
    other_topics: list[TopicSeen] = field(default_factory=list)
    creation_trouble: str | None = None
    stamps: list[Stamp] = field(default_factory=list)
    stamps_trouble: str = ""
    is_whole: bool = False
    """False while questions are open."""


class Survey:
    """Asks one cluster. `seen` fills while `run` goes on, so that whoever ends it before its time
    has what was learned until then.

    `own_topics` are looked at with their settings, whether the cluster has them or not. What comes
    in the topic `stamped` for `listen_s` is kept with the time of its arrival.
    Raises StartupError for files or addresses that cannot be used.
    """

    def __init__(
        self,
        dc: str,
        cluster: KafkaClusterConfig,
        settings: KafkaConfig,
        clock: Clock,
        own_topics: Sequence[str],
        *,
        stamped: str,
        listen_s: float,
        request_timeout_ms: int,
    ) -> None:
        settings = msgspec.structs.replace(
            settings, request_timeout_ms=min(settings.request_timeout_ms, request_timeout_ms)
        )
        self.seen = ClusterSeen(dc=dc)
        self._kafka = settings
        self._connection = KafkaCluster(dc, cluster, settings)
        rng = random.Random(system_rng().random())  # noqa: S311 -- jitter
        self._brokers = Brokers(self._connection, rng)
        self._positions = Positions(self._brokers)
        self._clock = clock
        self._own_topics = own_topics
        self._stamped = stamped
        self._listen_s = listen_s

    async def run(self) -> None:
        """Ask all there is to ask."""
        try:
            await guest.call(self._look)
            if not self.seen.trouble:
                await self._listen()
            self.seen.is_whole = True
        finally:
            with trio.CancelScope(shield=True):
                for part in (self._brokers, self._connection):
                    await guest.call(part.close)

    # On the host loop.

    async def _look(self) -> None:
        seen = self.seen
        seen.bootstrap = [BrokerSeen(address=each) for each in self._connection.bootstrap_servers]
        await asyncio.gather(*map(self._try, seen.bootstrap))
        if all(each.trouble for each in seen.bootstrap):
            seen.trouble = "no bootstrap server can be used"
            return
        try:
            topics = await self._brokers.persist(
                "the cluster cannot be described", lambda: self._brokers.describe(None)
            )
        except LogUnavailable as error:
            seen.trouble = error.message
            return
        seen.brokers = [
            BrokerSeen(address=f"{host}:{port}", node=node)
            for node, (host, port) in sorted(self._brokers.addresses.items())
        ]
        own = set(self._own_topics)
        seen.other_topics = [
            _topic_seen(each) for each in topics if not each[2] and each[1] not in own
        ]
        await asyncio.gather(
            *(self._look_at(each) for each in seen.brokers),
            self._look_at_topics(),
            self._ask_for_creation(),
        )

    async def _try(self, broker: BrokerSeen) -> None:
        """Connect as a node would; what the broker can do."""
        host, _, port = broker.address.rpartition(":")
        try:
            async with asyncio.timeout(self._kafka.request_timeout_ms / 1_000):
                session = await self._connection.connect(host.strip("[]"), int(port), "doctor")
        except _LOGIN_FAILURES as error:
            broker.trouble = self._explain(error, broker.address)
            return
        versions: dict[int, tuple[int, int]] = session._versions
        session.close()
        broker.fetch_version = versions.get(_FETCH, (0, 0))[1]
        broker.lacking = [name for key, name in _NEEDED_REQUESTS.items() if key not in versions]

    async def _look_at(self, broker: BrokerSeen) -> None:
        await self._try(broker)
        if broker.trouble or broker.node is None:
            return
        request = DescribeConfigsRequest([(_BROKER, str(broker.node), list(_BROKER_CONFIGS))])
        node = broker.node
        try:
            answer = await self._within(
                lambda: self._brokers.ask(request, node=node, purpose="doctor")
            )
        except FAILURES as error:
            broker.configs_trouble = self._explain(error, broker.address)
            return
        ((code, message, _, _, entries),) = answer.resources
        broker.configs_trouble = _words(code, message)
        broker.configs = {name: value for name, value, *_ in entries}

    async def _look_at_topics(self) -> None:
        if not self._own_topics:
            return
        names = list(self._own_topics)
        request = DescribeConfigsRequest([(_TOPIC, name, list(_TOPIC_CONFIGS)) for name in names])
        try:
            found = await self._within(lambda: self._brokers.describe(names))
            self.seen.own_topics = [_topic_seen(each) for each in found]
            there = {each.name: each for each in self.seen.own_topics if not each.trouble}
            answer = await self._within(lambda: self._brokers.ask_any(request, purpose="doctor"))
        except FAILURES as error:
            self.seen.trouble = self._connection.explain(error)
            return
        for code, message, _, name, entries in answer.resources:
            if name in there:
                there[name].trouble = _words(code, message)
                there[name].configs = {each: value for each, value, *_ in entries}

    async def _ask_for_creation(self) -> None:
        kafka = self._kafka
        configs = [("min.insync.replicas", str(kafka.min_insync_replicas))]
        wanted: Any = (DRY_RUN_TOPIC, 1, kafka.replication_factor, [], configs)
        request = CreateTopicsRequest([wanted], kafka.request_timeout_ms, True)
        try:
            answer = await self._within(lambda: self._brokers.ask_any(request, purpose="doctor"))
        except FAILURES as error:
            self.seen.creation_trouble = self._connection.explain(error)
            return
        ((_, code, message),) = answer.topic_errors
        self.seen.creation_trouble = _words(code, message)

    def _explain(self, error: BaseException, address: str) -> str:
        """Without the place, which stands beside it."""
        return self._connection.explain(error, address).partition(f"{address}: ")[2]

    async def _within(self, ask: Callable[[], Awaitable[T]]) -> T:
        async with asyncio.timeout(self._kafka.request_timeout_ms / 1_000):
            return await ask()

    # In trio.

    async def _listen(self) -> None:
        """Read the last records of the topic, and for a while what comes."""
        topic = self._stamped
        try:
            start, end = await guest.call(self._positions.bounds, topic, 0)
            position = max(start, end - _BEFORE_THE_END)
            async with open_reader(self._brokers, self._positions, topic, {0: position}) as reader:
                with trio.move_on_after(self._listen_s):
                    while True:
                        batch = await reader.next_batch(_RECORDS_MAX, _BYTES_MAX)
                        now_ms = self._clock.now_ms()
                        self.seen.stamps += [
                            Stamp(each, now_ms if each.offset >= end else None) for each in batch
                        ]
                        del self.seen.stamps[:-_RECORDS_MAX]
        except UnknownTopic:
            pass
        except OffsetOutOfRange as error:
            self.seen.stamps_trouble = str(error)
        except LogUnavailable as error:
            self.seen.stamps_trouble = error.message
        except FAILURES as error:
            self.seen.stamps_trouble = self._connection.explain(error)


def _topic_seen(described: tuple[int, str, bool, list[tuple[Any, ...]]]) -> TopicSeen:
    code, name, _, partitions = described
    replicas = [(len(each[3]), len(each[4])) for each in partitions]
    return TopicSeen(
        name=name,
        trouble=_words(code, None),
        partitions=len(partitions),
        leaderless=sum(each[2] < 0 for each in partitions),
        lagging=sum(in_sync < all_ for all_, in_sync in replicas),
        replicas=min((all_ for all_, _ in replicas), default=0),
        in_sync=min((in_sync for _, in_sync in replicas), default=0),
    )


def _words(code: int, message: str | None) -> str:
    if not code:
        return ""
    return message or str(kafka_errors.for_code(code).__name__).removesuffix("Error")
