"""Reads both datacentres' logs completely, to find and judge where each message is in the end."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from hermes_actors.config import KafkaClusterConfig, KafkaConfig
from hermes_actors.log.base import LATEST
from hermes_actors.log.kafka.log import open_kafka_log
from hermes_actors.metadata.keys import parse_log_topic
from hermes_actors.runtime.clock import SystemClock
from hermes_chaos.live.logs import read_all
from hermes_chaos.live.open_loop import Sent


@dataclass(frozen=True, slots=True)
class Copy:
    """One record of a message. `via` is its route, as the record says."""

    dc: str
    partition: int
    offset: int
    via: str


@dataclass
class Copies:
    """All records of some topics, by message id."""

    by_id: dict[str, list[Copy]] = field(default_factory=lambda: defaultdict(list))

    @property
    def extra(self) -> int:
        """The number of records that are not the first of their message."""
        return sum(len(copies) - 1 for copies in self.by_id.values())

    @property
    def extra_by_ways(self) -> Counter[str]:
        """For messages stored more than once: the routes of their copies."""
        return Counter(
            " + ".join(sorted(f"{copy.via} in {copy.dc}" for copy in copies))
            for copies in self.by_id.values()
            if len(copies) > 1
        )

    def missing(self, sent: Sequence[Sent]) -> list[Sent]:
        """The messages that were accepted and are in no log."""
        return [each for each in sent if each.is_accepted and each.message_id not in self.by_id]

    def disordered(self, sent: Sequence[Sent]) -> list[tuple[Sent, Sent]]:
        """Pairs with the same key and frontend, the first spooled (202) before the second was sent,
        that are in the wrong order in a partition. Judged by where each first appears.
        """
        by_key: dict[tuple[str, str, str], list[Sent]] = defaultdict(list)
        for each in sent:
            if each.is_accepted:
                by_key[each.frontend, each.topic, each.key].append(each)
        found = []
        for messages in by_key.values():
            for at, earlier in enumerate(messages):
                if earlier.status != 202:
                    continue
                found += [
                    (earlier, later)
                    for later in messages[at + 1 :]
                    if later.began_s >= earlier.ended_s and self._is_before(later, earlier)
                ]
        return found

    def _is_before(self, one: Sent, other: Sent) -> bool:
        first, second = self._places(one), self._places(other)
        return any(place in second and offset < second[place] for place, offset in first.items())

    def _places(self, sent: Sent) -> dict[tuple[str, int], int]:
        places: dict[tuple[str, int], int] = {}
        for copy in self.by_id.get(sent.message_id, ()):
            place = copy.dc, copy.partition
            places[place] = min(places.get(place, copy.offset), copy.offset)
        return places


async def read_copies(servers: Mapping[str, Sequence[str]], topics: Sequence[str]) -> Copies:
    """Read these topics in each datacentre. On trio, as the guest of an asyncio host."""
    copies = Copies()
    async with AsyncExitStack() as stack:
        for dc, addresses in servers.items():
            cluster = KafkaClusterConfig(bootstrap_servers=list(addresses))
            log = await stack.enter_async_context(
                open_kafka_log(dc, cluster, KafkaConfig(), SystemClock())
            )
            for name in await log.topics.names():
                parsed = parse_log_topic(name)
                if parsed is None or str(parsed[0]) not in topics:
                    continue
                for partition in await log.positions(name, LATEST):
                    for record in await read_all(log, name, partition):
                        headers = {key: value.decode() for key, value in record.headers}
                        copies.by_id[headers["id"]].append(
                            Copy(dc, partition, record.offset, headers.get("via", ""))
                        )
    return copies
