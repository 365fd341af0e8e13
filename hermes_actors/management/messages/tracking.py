"""Finds a message by its id in all datacentres' tracking logs; if they have no events, among the
dead letters and in this node's spool.
"""

from collections.abc import Callable
from typing import Any

from hermes_actors.errors import Unavailable
from hermes_actors.fallback.spool.spool import Spool
from hermes_actors.management.access.roles import Caller, owners_of
from hermes_actors.management.catalog.subscriptions import Subscriptions
from hermes_actors.management.dead_letters.letters import Letters
from hermes_actors.metadata.registry import Metadata
from hermes_actors.model.dead_letter import LetterFilter
from hermes_actors.model.moments import iso_ms
from hermes_actors.model.names import TopicName
from hermes_actors.status.fold import StatusFold
from hermes_actors.tracking.events import EventKind, TrackingEvent, terminal_of
from hermes_actors.tracking.index import IndexUnavailable, MessageLife, TrackedEvent
from hermes_actors.tracking.reader import TrackingFollowing

_LETTERS_MAX = 20
_HERMES = {
    EventKind.INFLIGHT: "INFLIGHT",
    EventKind.DELIVERED: "SUCCESS",
    EventKind.FAILED: "FAILED",
    EventKind.DISCARDED: "DISCARDED",
    EventKind.DEAD: "DISCARDED",
    EventKind.FILTERED: "FILTERED",
}


class MessageTracking:
    """Looks up messages in the index of all datacentres' tracking logs.

    Methods are trio coroutines. Callers see the events of their own topics and subscriptions only;
    administrators see all.
    """

    def __init__(
        self,
        metadata: Metadata,
        subscriptions: Subscriptions,
        letters: Letters,
        following: TrackingFollowing | None,
        status: StatusFold,
        spool: Callable[[], Spool | None],
        node: str,
    ) -> None:
        """`following`: the index; None finds no events. `spool`: this node's spool."""
        self._metadata = metadata
        self._subscriptions = subscriptions
        self._letters = letters
        self._following = following
        self._status = status
        self._spool = spool
        self._place = {"datacenter": metadata.dc, "node": node}

    async def of_message(self, caller: Caller, message_id: str) -> dict[str, Any]:
        """A message's events, its outcome for each subscription, and what may be missing.

        Also its open dead letters, its entry in this node's spool, and where they were `searched`;
        what these lack is among the `troubles` only of a message without events.
        """
        found = await self._find(message_id)
        events = [each for each in found.events if self._sees_event(caller, each.event)]
        ended = terminal_of([each.event for each in events])
        troubles = [] if self._following is None else self._following.troubles()
        elsewhere = await self._elsewhere(caller, message_id, [] if events else troubles)
        return {
            "messageId": message_id,
            "events": [_shown(each) for each in events],
            "ended": [_ended(each) for each in ended.values()],
            "gaps": [
                {
                    "datacenter": gap.log_dc,
                    "node": gap.node,
                    "since": gap.since_ms,
                    "until": gap.until_ms,
                    "missingBatches": gap.missing,
                    "dropped": gap.dropped,
                }
                for gap in found.gaps
            ],
            "leftOut": found.left_out if events else 0,
            "troubles": troubles,
            **elsewhere,
        }

    async def _elsewhere(
        self, caller: Caller, message_id: str, troubles: list[str]
    ) -> dict[str, Any]:
        """Search dead letters and spool for a message. Adds to `troubles` why the
        result may be incomplete.
        """
        lives = self._subscriptions.managed_by(caller)
        wanted = LetterFilter(message_id=message_id)
        found = await self._letters.newest(lives, wanted, _LETTERS_MAX)
        troubles += [f"{dc}: {reason}" for dc, reason in found.silent.items()]
        if not found.is_whole:
            troubles.append("it may have more dead letters than were searched")
        searched = [f"the open dead letters of your subscriptions ({len(lives)})"]
        spool, spooled = self._spool(), []
        if spool is not None:
            searched.append(f"the spool of node {self._place['node']}")
            entry, trouble = await spool.find(message_id)
            troubles += [trouble] if trouble else []
            if entry is not None and self._sees(caller, entry.topic):
                at = iso_ms(entry.spooled_at_ms)
                spooled.append({**self._place, "topicName": entry.topic, "spooledAt": at})
        troubles += self._other_spools()
        return {
            "deadLetters": [self._letters.view(each) for each in found.letters],
            "spooled": spooled,
            "searched": searched,
        }

    def _other_spools(self) -> list[str]:
        """A text for each other node with messages in its spool: only that node can search it."""
        nodes = self._status.nodes(self._metadata.clock.monotonic_s())
        return [
            f"{each.spooled} messages wait in the spool of node {each.node} of {each.dc}, which "
            "was not searched"
            for each in (view.header for view in nodes)
            if each.spooled and (each.dc, each.node) != tuple(self._place.values())
        ]

    async def of_subscription(
        self, caller: Caller, topic: str, name: str, message_id: str
    ) -> list[dict[str, Any]]:
        """The traces of a message's publishing and of its pushes to one subscription, in Hermes'
        format. Raises Refused if the subscription does not exist.
        """
        live = self._subscriptions.live(topic, name)
        found = await self._find(message_id)
        return [
            _trace(each, self._letters.logs.cluster(each.event.dc))
            for each in found.events
            if each.event.topic == str(live.name.topic)
            and each.event.subscription in ("", live.name.name)
            and self._sees_event(caller, each.event)
            and each.event.kind not in (EventKind.HEDGED, EventKind.SPOOLED)
        ]

    async def _find(self, message_id: str) -> MessageLife:
        if self._following is None:
            return MessageLife((), ())
        try:
            return await self._following.find(message_id)
        except IndexUnavailable as error:
            raise Unavailable(str(error)) from error

    def _sees_event(self, caller: Caller, event: TrackingEvent) -> bool:
        return self._sees(caller, event.topic, event.subscription)

    def _sees(self, caller: Caller, name: str, subscription: str = "") -> bool:
        if caller.is_admin:
            return True
        catalog = self._metadata.catalog
        topic = catalog.topics.get(name)
        if topic is None:
            return False
        owners = [topic.topic.owner]
        if subscription:
            live = catalog.subscriptions.get(f"{name}${subscription}")
            if live is not None:
                owners.append(live.subscription.owner)
        return any(map(caller.owns, owners_of(catalog, TopicName.parse(name), *owners)))


def _shown(each: TrackedEvent) -> dict[str, Any]:
    event = each.event
    fields: dict[str, Any] = {
        "event": event.kind.value,
        "timestamp": event.at_ms,
        "datacenter": event.dc,
        "node": each.node,
        "topicName": event.topic,
    }
    if event.subscription:
        fields |= {"subscription": event.subscription, "epoch": event.epoch}
    if event.partition >= 0:
        fields["partition"] = event.partition
    if event.offset >= 0:
        fields["offset"] = event.offset
    for name, value in (
        ("attempt", event.attempt),
        ("status", event.status),
        ("reason", event.reason),
        ("via", event.via),
    ):
        if value:
            fields[name] = value
    return fields


def _ended(event: TrackingEvent) -> dict[str, Any]:
    return {
        "topicName": event.topic,
        "subscription": event.subscription,
        "epoch": event.epoch,
        "event": event.kind.value,
        "timestamp": event.at_ms,
        "datacenter": event.dc,
    }


def _trace(each: TrackedEvent, cluster: str) -> dict[str, Any]:
    event = each.event
    common = {
        "messageId": event.message_id,
        "timestamp": event.at_ms,
        "topicName": event.topic,
        "reason": event.reason or None,
        "message": None,
        "cluster": cluster,
        "extraRequestHeaders": None,
    }
    if not event.subscription:
        status = "SUCCESS" if event.kind is EventKind.PUBLISHED else "ERROR"
        return common | {"status": status, "storageDc": event.dc}
    return common | {
        "batchId": None,
        "subscription": event.subscription,
        "status": _HERMES[event.kind],
        "partition": event.partition,
        "offset": event.offset,
    }
