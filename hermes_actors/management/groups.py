"""Groups: created, listed and removed; a group with topics is never removed."""

from collections.abc import Mapping
from typing import Any

from hermes_actors.config import ManagementConfig
from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.management.changes import Changes
from hermes_actors.management.decoding import required_text
from hermes_actors.management.roles import Caller, require_admin
from hermes_actors.metadata.bodies import group_body
from hermes_actors.metadata.catalog import LiveGroup
from hermes_actors.metadata.commands import Absent, Alive, Change, Childless, delete, put
from hermes_actors.metadata.keys import group_key, topics_below
from hermes_actors.metadata.registry import Metadata
from hermes_actors.model.names import is_group_name


class Groups:
    """The groups of one datacentre's metadata. All methods are trio coroutines."""

    def __init__(self, metadata: Metadata, changes: Changes, config: ManagementConfig) -> None:
        self._metadata = metadata
        self._changes = changes
        self._config = config

    async def names(self) -> list[str]:
        """All group names, sorted."""
        return sorted(self._metadata.catalog.groups)

    async def get(self, name: str) -> dict[str, Any]:
        """One group's JSON object. Raises Refused with GROUP_NOT_EXISTS."""
        self._live(name)
        return {"groupName": name}

    async def create(self, caller: Caller, body: Mapping[str, Any]) -> None:
        """Create a group.

        Raises Refused: GROUP_NAME_IS_INVALID, GROUP_ALREADY_EXISTS, PERMISSION_DENIED.
        """
        name = required_text(body, "groupName", "Group")
        pattern = self._config.allowed_group_name_pattern
        if not is_group_name(name, pattern) or "$" in name or "/" in name:
            raise Refused(
                f"Group name '{name}' is invalid: it must match {pattern} and hold neither $ nor /",
                ErrorCode.GROUP_NAME_IS_INVALID,
            )

        def decide() -> Change:
            if name in self._metadata.catalog.groups:
                raise Refused(f"Group {name} already exists", ErrorCode.GROUP_ALREADY_EXISTS)
            if not caller.is_admin and not self._config.non_admin_group_creation:
                raise Refused(
                    f"{caller.name} may not create groups: only an administrator may",
                    ErrorCode.PERMISSION_DENIED,
                )
            key = group_key(name)
            return put(key, group_body({"groupName": name}), Absent(key))

        await self._changes.make(decide)

    async def update(self, caller: Caller, name: str, patch: Mapping[str, Any]) -> None:
        """Change a group: it has nothing but its name, which cannot change. Raises Refused."""
        require_admin(caller, f"change group {name}")
        self._live(name)
        renamed = patch.get("groupName")
        if renamed is not None and renamed != name:
            raise Refused(f"Group.groupName is '{renamed}', but the path names '{name}'")

    async def delete(self, caller: Caller, name: str) -> None:
        """Remove an empty group, for anyone. Raises Refused: GROUP_NOT_EXISTS, GROUP_NOT_EMPTY."""

        def decide() -> Change:
            group = self._live(name)
            topics = self._metadata.catalog.topics_of(name)
            if topics:
                count = "1 topic" if len(topics) == 1 else f"{len(topics)} topics"
                raise Refused(
                    f"Group {name} is not empty: it holds {count}, "
                    f"{topics[0].name} for one; remove them first",
                    ErrorCode.GROUP_NOT_EMPTY,
                )
            key = group_key(name)
            return delete(key, Alive(key, group.incarnation), Childless(topics_below(name)))

        await self._changes.make(decide)

    def _live(self, name: str) -> LiveGroup:
        group = self._metadata.catalog.groups.get(name)
        if group is None:
            raise Refused(f"Group {name} does not exist", ErrorCode.GROUP_NOT_EXISTS)
        return group
