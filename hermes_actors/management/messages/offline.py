"""Tasks of offline retransmission: a part of a topic's archive to be published again.

They are only kept here. `hermes spark replay --task` carries them out.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.management.access.roles import Caller, require_owner
from hermes_actors.management.bodies.decoding import decode_plain
from hermes_actors.management.catalog.topics import Topics
from hermes_actors.management.changes import Changes
from hermes_actors.metadata.catalog import Catalog
from hermes_actors.metadata.keys import key
from hermes_actors.model.moments import iso_ms, moment_ms
from hermes_actors.runtime.clock import Clock, IdSource

_KIND = "offline-retransmission"
_RANGE = (
    "Must contain both startTimestamp and endTimestamp for topic retransmission. "
    "StartTimestamp must be lower than endTimestamp"
)


class OfflineRetransmission(Struct, frozen=True, kw_only=True, rename="camel"):
    """A request for a task. A task of type `view` is for a job of your own."""

    type: Literal["topic", "view"]
    target_topic: str | None = None
    source_topic: str | None = None
    source_view_path: str | None = None
    start_timestamp: str | None = None
    end_timestamp: str | None = None


class OfflineTasks:
    """The tasks, stored in the metadata. Methods are trio coroutines."""

    def __init__(
        self, catalog: Catalog, topics: Topics, changes: Changes, clock: Clock, ids: IdSource
    ) -> None:
        self._catalog = catalog
        self._topics = topics
        self._changes = changes
        self._clock = clock
        self._ids = ids

    async def create(self, caller: Caller, body: Mapping[str, Any]) -> None:
        """Store a task, for owners of its topics. Raises Refused and Unavailable."""
        asked = decode_plain(OfflineRetransmission, body)
        now_ms = self._clock.now_ms()
        names = {"Source": asked.source_topic or "", "Target": asked.target_topic or ""}
        start, end = (_time(at, now_ms) for at in (asked.start_timestamp, asked.end_timestamp))
        if asked.type == "view":
            del names["Source"]
            start = end = ""
        elif not start or not end or start >= end:
            raise Refused(_RANGE)
        if not asked.target_topic:
            raise Refused("targetTopic must not be empty")
        for side, name in names.items():
            if not self._topics.exists(name):
                raise Refused(f"{side} topic does not exist")
        topics = [self._topics.live(name) for name in names.values()]
        if topics[-1].topic.offline_storage.enabled:
            raise Refused("Target topic must not be stored offline")
        owners = map(self._topics.owners, topics)
        if not caller.is_admin and not all(any(map(caller.owns, each)) for each in owners):
            sides = "source and target topics" if len(topics) > 1 else "target topic"
            raise Refused(f"User needs permissions to {sides}.", ErrorCode.PERMISSION_DENIED)
        task = {
            "type": asked.type.upper(),
            "taskId": self._ids.message_id(),
            "sourceViewPath": asked.source_view_path if asked.type == "view" else "",
            "sourceTopic": names.get("Source"),
            "targetTopic": asked.target_topic,
            "startTimestamp": start,
            "endTimestamp": end,
            "createdAt": iso_ms(now_ms),
        }
        task = {name: value for name, value in task.items() if value}
        await self._changes.store(key(_KIND, str(task["taskId"])), msgspec.json.encode(task))

    async def all(self) -> list[dict[str, Any]]:
        """All tasks, oldest first, in Hermes' format."""
        tasks = [
            msgspec.json.decode(each.body)
            for name, each in self._catalog.others.items()
            if name.startswith(f"{_KIND}/") and each.body is not None
        ]
        return sorted(tasks, key=lambda each: (each["createdAt"], each["taskId"]))

    async def of_topic(self, topic: str) -> list[dict[str, Any]]:
        """The tasks from or to a topic, with links in Hermes' format, which are empty here."""
        links = {"logsUrl": "", "metricsUrl": "", "jobDetailsUrl": ""}
        return [
            {"type": each["type"], "taskId": each["taskId"], **links}
            for each in await self.all()
            if topic in (each.get("sourceTopic"), each["targetTopic"])
        ]

    async def delete(self, caller: Caller, task_id: str) -> None:
        """Delete a task, for owners of its target. Raises Refused and Unavailable."""
        target = {each["taskId"]: each["targetTopic"] for each in await self.all()}.get(task_id)
        if target is None:
            raise Refused(f"Retransmission task with id {task_id} does not exist.")
        is_there = self._topics.exists(target)
        owners = self._topics.owners(self._topics.live(target)) if is_there else ()
        require_owner(caller, f"delete retransmission tasks of topic {target}", *owners)
        await self._changes.store(key(_KIND, task_id), None)


def _time(text: str | None, now_ms: int) -> str:
    """The time in ISO 8601; an empty string if it is missing or, as in Hermes, not readable."""
    try:
        return "" if text is None else iso_ms(moment_ms(text, now_ms))
    except ValueError:
        return ""
