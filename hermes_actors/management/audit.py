"""The changes of a datacentre's metadata, searched, and followed as a stream of events.

Only the newest ones are in memory.
"""

from math import inf
from typing import Any

import msgspec
import trio

from hermes_actors.errors import Refused
from hermes_actors.management.access.roles import Caller
from hermes_actors.metadata.registry import Metadata
from hermes_actors.metadata.resources import (
    as_json,
    concerns,
    parse_place,
    resource_of,
    resource_problem,
)
from hermes_actors.metadata.trail import Entry, Place
from hermes_actors.model.moments import iso_ms, moment_ms
from hermes_actors.runtime.clock import Clock

LIMIT_MAX = 1_000
ANSWER_BYTES_MAX = 4_194_304
"""An answer ends after so many bytes of bodies; the next one continues."""


HEARTBEAT_S = 15.0
_EVENTS_MAX = 500
_EVENTS_BYTES = 262_144
_LOOKED_AT_AT_ONCE = 500
_SHOWN_AT_ONCE = 10


class AuditTrail:
    """The changes of one datacentre's metadata, for every caller; secrets are masked."""

    def __init__(self, metadata: Metadata, clock: Clock) -> None:
        self._metadata = metadata
        self._clock = clock

    async def changes(
        self,
        _caller: Caller,
        resource: str = "",
        by: str = "",
        since: str = "",
        until: str = "",
        limit: int = 100,
        before: str = "",
    ) -> dict[str, Any]:
        """Who changed what, when, from where and why, newest first.

        `next` continues as `before`. If older changes are not in memory any more, `isComplete` is
        false, and none from before `searchedSince` are shown. Raises Refused.
        """
        if not 0 < limit <= LIMIT_MAX:
            raise Refused(f"limit must be from 1 to {LIMIT_MAX}")
        since_ms, until_ms = self._moment("since", since), self._moment("until", until) or inf
        trail, wanted = self._metadata.trail, resource.strip("/")
        _require_known(wanted)
        below = self._place("before", before) if before else (trail.last[0] + 1, 0)

        def matches(entry: Entry) -> bool:
            return (
                entry.place < below
                and (not by or entry.author.by == by)
                and since_ms <= entry.time_ms < until_ms
                and concerns(resource_of(entry.key), wanted)
            )

        dropped_ms = trail.dropped_ms
        found: list[Entry] = []
        for count, entry in enumerate(list(reversed(trail.entries))):
            if count % _LOOKED_AT_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            if matches(entry):
                found.append(entry)
            if len(found) > limit:
                break
        answer: dict[str, Any] = {"changes": [], "next": None, "isComplete": True}
        if len(found) <= limit and dropped_ms >= since_ms:
            answer |= {"isComplete": False, "searchedSince": iso_ms(dropped_ms)}
        size_bytes = 0
        for count, entry in enumerate(found):
            if count % _SHOWN_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            size_bytes += entry.size_bytes
            shown = answer["changes"]
            if shown and (len(shown) == limit or size_bytes > ANSWER_BYTES_MAX):
                answer["next"] = shown[-1]["id"]
                break
            shown.append(as_json(entry, self._metadata.dc))
        return answer

    async def stream(
        self, _caller: Caller, resource: str, since: str, last_id: str
    ) -> "ChangeStream":
        """The changes from now on, since a time, or after the one with the id `last_id`. Raises
        Refused if memory no longer has them.
        """
        _require_known(resource.strip("/"))
        trail, since_ms, after = self._metadata.trail, 0, self._metadata.trail.last
        if last_id:
            after = self._place("Last-Event-ID", last_id)
        elif since:
            since_ms, after = self._moment("since", since), trail.dropped
        if after < trail.dropped or trail.dropped_ms >= since_ms > 0:
            raise Refused(
                "The changes since then are too many for a stream: read them with GET /audit, then "
                "open the stream without Last-Event-ID"
            )
        return ChangeStream(self._metadata, after, resource.strip("/"), since_ms)

    def _moment(self, name: str, text: str) -> int:
        try:
            return moment_ms(text, self._clock.now_ms()) if text else 0
        except ValueError as error:
            raise Refused(f"{name}: '{text}' is not {error}") from error

    def _place(self, name: str, text: str) -> Place:
        own = self._metadata.dc
        try:
            dc, place = parse_place(text)
        except ValueError as error:
            raise Refused(f"{name}: '{text}' is not the id of a change") from error
        if dc != own:
            raise Refused(
                f"{name}: '{text}' is an id of datacentre {dc}, and this node is in {own}; ask a "
                "node there, or use since=<time>"
            )
        return place


def _require_known(resource: str) -> None:
    if problem := resource_problem(resource):
        raise Refused(problem)


class ChangeStream:
    """Server-sent events of changes. Without a queue: a reader is disconnected when memory no
    longer has its next change.
    """

    def __init__(self, metadata: Metadata, after: Place, resource: str, since_ms: int) -> None:
        self._metadata = metadata
        self._place = after
        self._resource = resource
        self._since_ms = since_ms

    async def next_chunk(self) -> bytes:
        """The next events; a comment if there is none for HEARTBEAT_S, because only a write shows
        whether the client is still connected. Empty at the end.
        """
        with trio.move_on_after(HEARTBEAT_S):
            await self._metadata.wait_noted(self._place)
        trail = self._metadata.trail
        if self._place < trail.dropped:
            return b""
        events = b""
        for count, entry in enumerate(trail.after(self._place, _EVENTS_MAX), 1):
            self._place = entry.place
            is_wanted = concerns(resource_of(entry.key), self._resource)
            if is_wanted and entry.time_ms >= self._since_ms:
                change = as_json(entry, self._metadata.dc)
                events += f"id: {change['id']}\nevent: {entry.action}\ndata: ".encode()
                events += msgspec.json.encode(change) + b"\n\n"
            if len(events) > _EVENTS_BYTES:
                break
            if count % _SHOWN_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        return events or b": no change\n\n"
