"""The offsets and lag of a subscription in each datacentre's log, from its commits."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from hermes_actors.coordination.view import Coordination
from hermes_actors.log.base import EARLIEST, LATEST, Commit, Log
from hermes_actors.log.commits import Progress, decode
from hermes_actors.management.catalog.subscriptions import Subscriptions
from hermes_actors.management.offsets.asking import Answers, Logs
from hermes_actors.metadata.catalog import LiveSubscription, LiveTopic
from hermes_actors.metadata.registry import Metadata
from hermes_actors.model.subscription import SubscriptionState
from hermes_actors.runtime.clock import Clock
from hermes_actors.status.fold import StatusFold
from hermes_actors.status.sums import ConsumingNode, places

UNKNOWN = -1


class _Found(Struct, frozen=True):
    """A subscription's starts, ends and commits in one datacentre's log, by partition."""

    starts: dict[int, int]
    ends: dict[int, int]
    commits: dict[int, Commit]


_NOTHING = _Found({}, {}, {})


class Standings:
    """Positions, ends and lags. `lag` and `consumer_groups` are trio coroutines.

    `fold` knows the consuming nodes; `coordinations`, by datacentre, know the partitions that each
    owns.
    """

    def __init__(
        self,
        metadata: Metadata,
        logs: Logs,
        subscriptions: Subscriptions,
        fold: StatusFold | None,
        clock: Clock,
        coordinations: Mapping[str, Coordination] = MappingProxyType({}),
    ) -> None:
        self._coordinations = coordinations
        self._metadata = metadata
        self._logs = logs
        self._subscriptions = subscriptions
        self._fold = fold or StatusFold()
        self._clock = clock

    async def lag(self, topic: str, name: str) -> dict[str, Any]:
        """The offsets and the lag (unsettled messages) of each partition in each datacentre.

        A message that waits for a retry counts as one, even if later ones were delivered. Raises
        Refused.
        """
        live = self._subscriptions.live(topic, name)
        answers = await self._ask(live)
        shown = [_datacenter(dc, found, live) for dc, found in answers.known.items()]
        for dc, reason in answers.silent.items():
            unknown = {"isKnown": False, "reason": reason, "lag": UNKNOWN, "partitions": []}
            shown.append({"datacenter": dc, **unknown})
        shown.sort(key=lambda each: str(each["datacenter"]))
        return {
            "topic": topic,
            "subscription": name,
            "state": live.state.value,
            "lag": _sum([each["lag"] for each in shown]),
            "datacenters": shown,
        }

    async def consumer_groups(self, topic: str, name: str) -> list[dict[str, Any]]:
        """The consumer group in each datacentre, in Hermes' format. Its members are the consuming
        nodes.

        Raises Refused.
        """
        live = self._subscriptions.live(topic, name)
        live_topic = self._topic(live)
        now_s = self._clock.monotonic_s()
        members = [
            place
            for place in places(self._fold, str(live.name), now_s)
            if place.view.is_there and live.subscription.state is not SubscriptionState.SUSPENDED
        ]
        answers = await self._ask(live)
        groups = []
        for dc in sorted({*answers.known, *answers.silent}):
            here = [place for place in members if place.view.header.dc == dc]
            found = answers.known.get(dc)
            state = "Unknown" if found is None else "Stable" if here else "Empty"
            groups.append(
                {
                    "clusterName": self._logs.cluster(dc),
                    "groupId": live.name.consumer_group(),
                    "state": state,
                    "members": [
                        _member(
                            place, found or _NOTHING, live, live_topic, self._owned(place, live)
                        )
                        for place in here
                    ],
                    "empty": state == "Empty",
                    "stable": state == "Stable",
                }
            )
        return groups

    def _owned(self, place: ConsumingNode, live: LiveSubscription) -> tuple[int, ...] | None:
        """The partitions of the subscription that the node owns; None if that is not known."""
        header = place.view.header
        followed = self._coordinations.get(header.dc)
        if followed is None or followed.trouble:
            return None
        state = followed.state
        return tuple(
            partition
            for grant in state.grants(str(live.name))
            if state.node_of(grant.boot) == header.node
            for partition in grant.partitions
        )

    def _topic(self, live: LiveSubscription) -> LiveTopic:
        return self._metadata.catalog.topics[str(live.name.topic)]

    async def _ask(self, live: LiveSubscription) -> Answers[_Found]:
        group, log_topic = live.name.consumer_group(), self._topic(live).log_topic

        async def question(log: Log) -> _Found:
            # Commits first: a position read after the end could be above it, a negative lag.
            commits = await log.committed(group, log_topic)
            starts = await log.positions(log_topic, EARLIEST)
            return _Found(starts, await log.positions(log_topic, LATEST), commits)

        return await self._logs.ask(question)


def _datacenter(dc: str, found: _Found, live: LiveSubscription) -> dict[str, Any]:
    shown: dict[str, Any] = {"datacenter": dc, "isKnown": True}
    partitions = [_partition(each, dc, found, live) for each in sorted(found.ends)]
    if any(each["position"] is None for each in partitions):
        shown["reason"] = "no consumer of it has committed in each partition yet"
    elif any(each["isSeekPending"] for each in partitions):
        shown["reason"] = "its consumer has not taken up the last retransmission yet"
    return {**shown, "lag": _sum([each["lag"] for each in partitions]), "partitions": partitions}


def _partition(partition: int, dc: str, found: _Found, live: LiveSubscription) -> dict[str, Any]:
    start, end = found.starts.get(partition, 0), found.ends[partition]
    progress = _progress(found.commits.get(partition), live)
    shown = {"partition": partition, "start": start, "end": end}
    if progress is None:
        creation = live.creation
        is_new = creation is not None and creation.dc == dc and partition not in creation.ends
        lag = end - start if is_new else UNKNOWN
        return {"position": None, "lag": lag, "isSeekPending": False, **shown}
    seek, owner = live.seek, progress.ownership
    return {
        "position": progress.position,
        "lag": _lag(progress, start, end),
        "isSeekPending": seek is not None
        and seek.moves(dc, partition)
        and owner is not None
        and owner.seek < seek.number,
        **shown,
    }


def _member(
    place: ConsumingNode,
    found: _Found,
    live: LiveSubscription,
    topic: LiveTopic,
    owned: tuple[int, ...] | None,
) -> dict[str, Any]:
    node = place.view.header.node
    partitions = []
    for partition, end in sorted(found.ends.items()):
        if owned is not None and partition not in owned:
            continue
        commit = found.commits.get(partition)
        progress = _progress(commit, live)
        start = found.starts.get(partition, 0)
        partitions.append(
            {
                "partition": partition,
                "topic": topic.log_topic,
                "currentOffset": UNKNOWN if progress is None else progress.position,
                "logEndOffset": end,
                "lag": UNKNOWN if progress is None else _lag(progress, start, end),
                "offsetMetadata": "" if commit is None else commit.metadata,
                "contentType": topic.topic.content_type.value,
            }
        )
    return {"consumerId": node, "clientId": node, "host": node, "partitions": partitions}


def _progress(commit: Commit | None, live: LiveSubscription) -> Progress | None:
    """The progress in the commit. None without a commit, or if it belongs to an earlier incarnation
    of the subscription or its topic.
    """
    if commit is None:
        return None
    progress = decode(commit)
    owner = progress.ownership
    if owner is not None and (owner.incarnation, owner.topic_incarnation) != (
        live.incarnation,
        live.topic_incarnation,
    ):
        return None
    return progress


def _lag(progress: Progress, start: int, end: int) -> int:
    """The number of unsettled records that the log still holds."""
    position = max(progress.position, start)
    settled = sum(max(0, min(high, end) - max(low, position)) for low, high in progress.intervals)
    return max(0, end - position - settled)


def _sum(lags: list[int]) -> int:
    return UNKNOWN if not lags or UNKNOWN in lags else sum(lags)
