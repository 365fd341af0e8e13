"""Compares the metadata of all datacentres, and log topics with the metadata, as Hermes does.

Replication makes datacentres equal within seconds, so a difference lasts only while it cannot copy.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import msgspec

from hermes_actors.errors import ErrorCode, Refused, Unavailable
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.bodies.secrets import masked
from hermes_actors.management.changes import Changes
from hermes_actors.management.offsets.asking import Logs
from hermes_actors.metadata import keys
from hermes_actors.metadata.commands import Absent, Change, Childless, StampIs, delete, put
from hermes_actors.metadata.registry import Metadata
from hermes_actors.model.names import RESERVED_GROUP, SubscriptionName, TopicName
from hermes_actors.model.subscription import Subscription
from hermes_actors.runtime.turns import each_in_turns

_logger = logging.getLogger(__name__)

_COPIES = "inconsistentMetadata"


class Consistency:
    """The metadata and logs of all datacentres, for administrators. Methods are trio coroutines.

    They raise Refused, and Unavailable while a datacentre does not answer.
    """

    def __init__(self, metadata: Metadata, changes: Changes, logs: Logs) -> None:
        self._metadata = metadata
        self._changes = changes
        self._logs = logs

    async def groups(self) -> list[str]:
        """The groups of all datacentres, sorted."""
        return sorted({name for each in self._folds() for name in each.catalog.groups})

    async def differences(self, group_names: list[str] | None = None) -> list[dict[str, Any]]:
        """The groups that differ between datacentres, or have a topic or subscription that does.
        With `group_names` only these.
        """
        folds = self._folds()
        groups, topics, subscriptions = [
            await _differing(folds, kind) for kind in ("group", "topic", "subscription")
        ]
        in_topic, in_group = defaultdict(list), defaultdict(list)
        for name, copies in subscriptions.items():
            in_topic[name.partition("$")[0]].append({"name": name, _COPIES: copies})
        for name in sorted({*topics, *in_topic}):
            found = {"name": name, _COPIES: topics.get(name, [])}
            found["inconsistentSubscriptions"] = in_topic[name]
            in_group[name.rpartition(".")[0]].append(found)
        return [
            {"name": name, _COPIES: groups.get(name, []), "inconsistentTopics": in_group[name]}
            for name in sorted({*groups, *in_group})
            if not group_names or name in group_names
        ]

    async def sync_group(self, group: str, primary_datacenter: str) -> None:
        """Make a group in all datacentres what it is in one of them."""
        await self._sync(keys.group_key(group), primary_datacenter, keys.topics_below(group))

    async def sync_topic(self, topic: str, primary_datacenter: str) -> None:
        """Make a topic in all datacentres what it is in one of them."""
        name = TopicName.parse(topic)
        around = keys.subscriptions_below(name), keys.group_key(name.group)
        await self._sync(keys.topic_key(name), primary_datacenter, *around)

    async def sync_subscription(self, topic: str, name: str, primary_datacenter: str) -> None:
        """Make a subscription in all datacentres what it is in one of them."""
        found = SubscriptionName(TopicName.parse(topic), name)
        key = keys.subscription_key(found)
        await self._sync(key, primary_datacenter, f"{key}/", keys.topic_key(found.topic))

    async def _sync(self, key: str, primary: str, below: str, parent: str = "") -> None:
        """Make a change to the own metadata, which the other datacentres copy. `below`: the prefix
        of keys without which it may be deleted. `parent`: the key with which it may be created.
        """

        def decide() -> Change | None:
            folds = {fold.dc: fold for fold in self._folds()}
            if primary not in folds:
                known = ", ".join(folds)
                raise Refused(f"primaryDatacenter: there is no '{primary}'; there are {known}")
            found = {dc: fold.register(key) for dc, fold in folds.items()}
            bodies = {dc: None if each is None else each.body for dc, each in found.items()}
            own, body = found[self._metadata.dc], bodies[primary]
            others = [each for each in found.values() if each is not None and each != own]
            if not any(found.values()):
                raise Refused(f"No datacentre knows {key}", ErrorCode.OTHER, 404)
            is_newest = all(own is not None and own.supersedes(each) for each in others)
            if is_newest and body == bodies[self._metadata.dc]:
                # Replication does the rest.
                return None
            is_alive, life = own is not None and own.is_alive, own.incarnation if own else 0
            metadata = self._metadata
            stamp = max(metadata.clock.now_ms(), metadata.state.last_stamp + 1)
            # A change made here now would lose against these.
            is_late = any(each.incarnation > life or each.stamp >= stamp for each in others)
            if is_late or not (is_alive or body):
                raise Unavailable(
                    f"{key}: another datacentre created, changed or deleted it, which "
                    f"{self._metadata.dc} has not copied yet; try again"
                )
            now = StampIs(key, own.stamp) if own is not None and is_alive else Absent(key)
            if body is None:
                if not self._metadata.state.holds(Childless(below)):
                    raise Refused(f"{below} is not empty; sync what it holds first")
                return delete(key, now, Childless(below))
            above = self._metadata.register(parent)
            if parent and (above is None or not above.is_alive):
                raise Refused(f"{parent} does not exist in {self._metadata.dc}; sync it first")
            return put(key, body, now)

        await self._changes.make(decide)

    async def unknown_topics(self) -> list[str]:
        """The log topics of all datacentres that no metadata has ever known, sorted."""
        folds = self._folds()
        held = (await self._logs.ask(lambda log: log.topics.names())).whole().values()

        def is_unknown(log_topic: str) -> bool:
            parsed = keys.parse_log_topic(log_topic, self._metadata.namespace)
            if parsed is None or parsed[0].group.partition(".")[0] == RESERVED_GROUP:
                return False
            return all(fold.register(keys.topic_key(parsed[0])) is None for fold in folds)

        return sorted(filter(is_unknown, {name for each in held for name in each}))

    async def delete_topic(self, caller: Caller, topic_name: str) -> None:
        """Delete a log topic without metadata, with its messages, in all datacentres."""
        if topic_name not in await self.unknown_topics():
            raise Refused(f"No log has a stray topic {topic_name}", ErrorCode.TOPIC_NOT_EXISTS)
        _logger.warning("%s deletes log topic %s, which has no metadata", caller.name, topic_name)
        (await self._logs.ask(lambda log: log.topics.delete(topic_name))).whole()

    def _folds(self) -> list[Metadata]:
        """The metadata of all datacentres, sorted by name."""
        folds = sorted((self._metadata, *self._metadata.standins), key=lambda fold: fold.dc)
        if silent := [f"{fold.dc}: {fold.health.reason}" for fold in folds if fold.health.reason]:
            raise Unavailable("; ".join(silent))
        return folds


async def _differing(folds: Iterable[Metadata], kind: str) -> dict[str, list[dict[str, Any]]]:
    """The copies of those of this kind that are not the same in all datacentres, by name, in
    Hermes' format.
    """
    live = {fold.dc: getattr(fold.catalog, f"{kind}s") for fold in folds}
    found = {}
    async for name in each_in_turns(sorted({name for each in live.values() for name in each})):
        copies = {dc: getattr(each.get(name), kind, None) for dc, each in live.items()}
        first, *others = copies.values()
        if any(each != first for each in others):
            found[name] = [{"datacenter": dc, **_content(each)} for dc, each in copies.items()]
    return found


def _content(value: Any) -> dict[str, str]:
    """The JSON text of a value; nothing if there is none."""
    shown = masked(value) if isinstance(value, Subscription) else value
    return {} if value is None else {"content": msgspec.json.encode(shown).decode()}
