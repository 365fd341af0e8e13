"""Where a message is, by its id: what all datacentres' tracking logs say of it."""

from functools import partial
from typing import Any

from hermes_actors.errors import Unavailable
from hermes_actors.management.access.roles import Caller, owners_of
from hermes_actors.management.catalog.subscriptions import Subscriptions
from hermes_actors.metadata.registry import Metadata
from hermes_actors.model.names import TopicName
from hermes_actors.tracking.events import EventKind, TrackingEvent, terminal_of
from hermes_actors.tracking.index import IndexUnavailable, MessageLife, TrackedEvent
from hermes_actors.tracking.reader import TrackingFollowing

_HERMES = {
    EventKind.INFLIGHT: "INFLIGHT",
    EventKind.DELIVERED: "SUCCESS",
    EventKind.FAILED: "FAILED",
    EventKind.DISCARDED: "DISCARDED",
    EventKind.DEAD: "DISCARDED",
    EventKind.FILTERED: "FILTERED",
}


class MessageTracking:
    """Looks messages up in the index of all datacentres' tracking logs.

    Methods are trio coroutines. A caller sees the events of topics and subscriptions that he owns.
    """

    def __init__(
        self, metadata: Metadata, subscriptions: Subscriptions, following: TrackingFollowing | None
    ) -> None:
        """Without a following nothing is found."""
        self._metadata = metadata
        self._subscriptions = subscriptions
        self._following = following

    async def of_message(self, caller: Caller, message_id: str) -> dict[str, Any]:
        """A message's events, how each subscription ended with it, and what may be missing."""
        found = await self._find(message_id)
        may_see = partial(self._sees, caller)
        events = [each for each in found.events if may_see(each.event)]
        ended = terminal_of([each.event for each in events])
        troubles = [] if self._following is None else self._following.troubles()
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
        }

    async def of_subscription(
        self, caller: Caller, topic: str, name: str, message_id: str
    ) -> list[dict[str, Any]]:
        """Hermes' traces of a message for one subscription: of its publishing and its sending.

        Raises Refused when there is no such subscription.
        """
        live = self._subscriptions.live(topic, name)
        found = await self._find(message_id)
        return [
            _trace(each)
            for each in found.events
            if each.event.topic == str(live.name.topic)
            and each.event.subscription in ("", live.name.name)
            and self._sees(caller, each.event)
            and each.event.kind not in (EventKind.HEDGED, EventKind.SPOOLED)
        ]

    async def _find(self, message_id: str) -> MessageLife:
        if self._following is None:
            return MessageLife((), ())
        try:
            return await self._following.find(message_id)
        except IndexUnavailable as error:
            raise Unavailable(str(error)) from error

    def _sees(self, caller: Caller, event: TrackingEvent) -> bool:
        if caller.is_admin:
            return True
        catalog = self._metadata.catalog
        topic = catalog.topics.get(event.topic)
        if topic is None:
            return False
        owners = [topic.topic.owner]
        if event.subscription:
            live = catalog.subscriptions.get(f"{event.topic}${event.subscription}")
            if live is not None:
                owners.append(live.subscription.owner)
        return any(map(caller.owns, owners_of(catalog, TopicName.parse(event.topic), *owners)))


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


def _trace(each: TrackedEvent) -> dict[str, Any]:
    event = each.event
    common = {
        "messageId": event.message_id,
        "timestamp": event.at_ms,
        "topicName": event.topic,
        "reason": event.reason or None,
        "message": None,
        "cluster": event.dc,
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
