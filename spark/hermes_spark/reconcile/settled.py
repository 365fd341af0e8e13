"""The offsets that each subscription has settled, from the commits in a snapshot. Pure."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import msgspec
from msgspec import Struct

from hermes_actors.errors import Refused
from hermes_actors.log.base import Commit
from hermes_actors.log.commits import CommitOwner, Interval, Progress, decode
from hermes_actors.model.names import SubscriptionName, TopicName
from hermes_spark.lives import life_of
from hermes_spark.snapshot import Datacentre, PartitionRange, Snapshot


class PartitionSettled(Struct, frozen=True):
    """One partition of a datacentre's log, as one subscription has settled it.

    Everything below `position` is settled, and the `intervals` above it. `position` is None without
    a commit: then nothing is known.
    """

    dc: str
    range: PartitionRange
    position: int | None
    intervals: tuple[Interval, ...] = ()

    @property
    def beyond(self) -> int:
        """The number of settled offsets that are not stored. Above 0, the log was truncated."""
        highest = max((end for _, end in self.intervals), default=self.position or 0)
        return max(0, max(highest, self.position or 0) - self.range.end)

    def unsettled(self) -> Iterator[PartitionRange]:
        """The stored offsets that are not settled, ascending; none if unknown."""
        if self.position is None:
            return
        at = max(self.position, self.range.start)
        for start, end in (*self.intervals, (self.range.end, self.range.end)):
            stop = min(start, self.range.end)
            if at < stop:
                yield PartitionRange(self.range.partition, at, stop)
            at = max(at, end)


class SubscriptionSettled(Struct, frozen=True):
    """One subscription in all datacentres. `log_topic` is the log's name of its topic's newest
    incarnation; `retransmissions` is how many there were.
    """

    topic: str
    name: str
    log_topic: str
    partitions: tuple[PartitionSettled, ...]
    retransmissions: int


def subscriptions_of(
    snapshot: Snapshot, incarnations: Mapping[str, int | None] = MappingProxyType({})
) -> list[SubscriptionSettled]:
    """Each subscription of the snapshot's topics with a commit in at least one datacentre, by topic
    and name. `incarnations` comes from `registered`; deleted ones are left out.

    Commits of an earlier incarnation of a topic or subscription are ignored, and those of an
    incarnation older than the registered one or another datacentre's.
    """
    newest: dict[str, int] = {}
    for datacentre in snapshot.datacentres.values():
        for topic, life in map(life_of, datacentre.topics):
            newest[topic] = max(newest.get(topic, 0), life)
    found: dict[tuple[str, str, str], dict[str, dict[int, Progress]]] = {}
    for dc, datacentre in snapshot.datacentres.items():
        for group, topics in datacentre.groups.items():
            for log_topic, commits in topics.items():
                topic, life = life_of(log_topic)
                if newest.get(topic) != life:
                    continue
                name = _subscription_of(group, topic, datacentre.namespace)
                if name and incarnations.get(f"{topic}${name}", 0) is not None:
                    found.setdefault((topic, name, log_topic), {})[dc] = {
                        each.partition: decode(Commit(each.position, each.metadata))
                        for each in commits
                    }
    return [
        _settled(
            *names, by_dc, snapshot.datacentres, incarnations.get(f"{names[0]}${names[1]}") or 0
        )
        for names, by_dc in sorted(found.items())
    ]


def _subscription_of(group: str, topic: str, namespace: str) -> str:
    """The subscription of a consumer group. Empty string for a foreign group."""
    try:
        parsed = TopicName.parse(topic)
    except Refused:
        # A foreign topic in the same cluster.
        return ""
    prefix = SubscriptionName(parsed, "").consumer_group(namespace)
    escaped = group.removeprefix(prefix)
    name = escaped.replace("__", "_")
    is_one = bool(name) and SubscriptionName(parsed, name).consumer_group(namespace) == group
    return name if is_one else ""


def _settled(
    topic: str,
    name: str,
    log_topic: str,
    by_dc: dict[str, dict[int, Progress]],
    datacentres: dict[str, Datacentre],
    incarnation: int,
) -> SubscriptionSettled:
    owned = [
        each.ownership
        for partitions in by_dc.values()
        for each in partitions.values()
        if each.ownership is not None and each.ownership.incarnation >= incarnation
    ]
    newest = max(map(_life, owned), default=(0, 0))
    present = [each for each in owned if _life(each) == newest]
    partitions = []
    for dc, datacentre in datacentres.items():
        for held in datacentre.topics.get(log_topic, []):
            said = by_dc.get(dc, {}).get(held.partition)
            if said is None or (said.ownership is not None and said.ownership not in present):
                partitions.append(PartitionSettled(dc, held, None))
            else:
                partitions.append(PartitionSettled(dc, held, said.position, said.intervals))
    retransmissions = max((each.seek for each in present), default=0)
    return SubscriptionSettled(topic, name, log_topic, tuple(partitions), retransmissions)


def _life(ownership: CommitOwner) -> tuple[int, int]:
    return ownership.topic_incarnation, ownership.incarnation


def tails(snapshot: Snapshot, subscriptions: list[SubscriptionSettled]) -> Snapshot:
    """The snapshot restricted to what at least one subscription has not settled, one range for each
    partition: usually its last few offsets.
    """
    lowest: dict[tuple[str, str, int], PartitionRange] = {}
    for subscription in subscriptions:
        for each in subscription.partitions:
            for gap in each.unsettled():
                key = (each.dc, subscription.log_topic, gap.partition)
                start = min(gap.start, lowest[key].start) if key in lowest else gap.start
                lowest[key] = PartitionRange(gap.partition, start, each.range.end)
    cut = {}
    for dc, datacentre in snapshot.datacentres.items():
        topics: dict[str, list[PartitionRange]] = {}
        for (owner, topic, _), tail in sorted(lowest.items()):
            if owner == dc:
                topics.setdefault(topic, []).append(tail)
        cut[dc] = msgspec.structs.replace(datacentre, topics=topics)
    return msgspec.structs.replace(snapshot, datacentres=cut)
