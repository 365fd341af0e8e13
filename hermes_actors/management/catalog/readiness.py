"""The readiness of datacentres for publishing: administrators set it, all datacentres share it."""

from collections.abc import Mapping, Sequence
from typing import Any

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.management.changes import Changes
from hermes_actors.metadata.bodies import readiness_body
from hermes_actors.metadata.commands import Change, put
from hermes_actors.metadata.keys import readiness_key
from hermes_actors.metadata.registry import Metadata


class DatacenterReadiness:
    """The readiness of the given datacentres. All methods are trio coroutines."""

    def __init__(self, metadata: Metadata, changes: Changes, datacenters: Sequence[str]) -> None:
        self._metadata = metadata
        self._changes = changes
        self._datacenters = frozenset((metadata.dc, *datacenters))

    async def all(self) -> list[dict[str, Any]]:
        """The readiness of each datacentre."""
        catalog = self._metadata.catalog
        names = sorted(self._datacenters.union(catalog.marked_datacenters()))
        return [
            {"datacenter": dc, "status": "READY" if catalog.is_ready(dc) else "NOT_READY"}
            for dc in names
        ]

    async def set(self, dc: str, body: Mapping[str, Any]) -> None:
        """Mark a datacentre as ready, or not. Raises Refused and Unavailable."""
        is_ready = body.get("isReady")
        if not isinstance(is_ready, bool):
            raise Refused("isReady must be true or false", ErrorCode.FORMAT_ERROR)
        known = self._datacenters.union(self._metadata.catalog.marked_datacenters())
        if dc not in known:
            raise Refused(f"Datacentre '{dc}' does not exist; known are {', '.join(sorted(known))}")

        def decide() -> Change | None:
            if self._metadata.catalog.is_ready(dc) == is_ready:
                return None
            return put(readiness_key(dc), readiness_body(is_ready))

        await self._changes.make(decide)
