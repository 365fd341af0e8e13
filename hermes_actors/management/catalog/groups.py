"""Groups: created, listed, changed and removed. A group with topics cannot be removed."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hermes_actors.config import ManagementConfig
from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.management.access.roles import Caller, require_owner
from hermes_actors.management.bodies.decoding import (
    decode_plain,
    merge,
    require_none,
    required_text,
)
from hermes_actors.management.catalog.rules import require_known_source
from hermes_actors.management.changes import Changes
from hermes_actors.metadata.bodies import group_body
from hermes_actors.metadata.catalog import LiveGroup
from hermes_actors.metadata.commands import Absent, Alive, Change, Childless, StampIs, delete, put
from hermes_actors.metadata.keys import group_key, topics_below
from hermes_actors.metadata.registry import Metadata
from hermes_actors.model.group import Group
from hermes_actors.model.labels import label_violations
from hermes_actors.model.names import group_problem
from hermes_actors.model.topic import Owner

_SHOWN_MAX = 100


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
        view: dict[str, Any] = msgspec.to_builtins(self._live(name).group)
        return view

    async def create(self, caller: Caller, body: Mapping[str, Any]) -> None:
        """Create a group, with or without an owner.

        Raises Refused: GROUP_NAME_IS_INVALID, GROUP_ALREADY_EXISTS, PERMISSION_DENIED, and
        VALIDATION_ERROR if the owner is not the caller.
        """
        name = required_text(body, "groupName", "Group")
        problem = group_problem(name, self._config.allowed_group_name_pattern)
        if problem:
            raise Refused(
                f"Group.groupName '{name[:_SHOWN_MAX]}' is not valid: {problem}",
                ErrorCode.GROUP_NAME_IS_INVALID,
            )
        group = decode_plain(Group, body)

        def decide() -> Change:
            if name in self._metadata.catalog.groups:
                raise Refused(f"Group {name} already exists", ErrorCode.GROUP_ALREADY_EXISTS)
            if not caller.is_admin and not self._config.non_admin_group_creation:
                raise Refused(
                    f"{caller.name} may not create groups: only an administrator may",
                    ErrorCode.PERMISSION_DENIED,
                )
            _require_manageable(group, caller, self._config.owner_sources)
            key = group_key(name)
            return put(key, group_body(group), Absent(key))

        await self._changes.make(decide)

    async def update(self, caller: Caller, name: str, patch: Mapping[str, Any]) -> None:
        """Change a group's owner, subscribers and labels, but not its name.

        For administrators and the group's owner. Raises Refused.
        """

        def decide() -> Change | None:
            live = self._live(name)
            old = live.group
            require_owner(caller, f"change group {name}", *_owners(old))
            new = decode_plain(Group, merge(msgspec.to_builtins(old), patch))
            if new.group_name != name:
                raise Refused(f"Group.groupName is '{new.group_name}', but the path names '{name}'")
            _require_manageable(new, caller, self._config.owner_sources)
            if new == old:
                return None
            key = group_key(name)
            return put(key, group_body(new), StampIs(key, live.stamp))

        await self._changes.make(decide)

    async def delete(self, caller: Caller, name: str) -> None:
        """Remove an empty group. Anybody may, unless the group has an owner: then only the owner
        and administrators may.

        Raises Refused: GROUP_NOT_EXISTS, GROUP_NOT_EMPTY, OTHER (403).
        """

        def decide() -> Change:
            live = self._live(name)
            if owners := _owners(live.group):
                require_owner(caller, f"remove group {name}", *owners)
            topics = self._metadata.catalog.topics_of(name)
            if topics:
                count = "1 topic" if len(topics) == 1 else f"{len(topics)} topics"
                raise Refused(
                    f"Group {name} is not empty: it has {count}, for example {topics[0].name}; "
                    "remove them first",
                    ErrorCode.GROUP_NOT_EMPTY,
                )
            key = group_key(name)
            return delete(key, Alive(key, live.incarnation), Childless(topics_below(name)))

        await self._changes.make(decide)

    def _live(self, name: str) -> LiveGroup:
        group = self._metadata.catalog.groups.get(name)
        if group is None:
            raise Refused(f"Group {name} does not exist", ErrorCode.GROUP_NOT_EXISTS)
        return group


def _owners(group: Group) -> tuple[Owner, ...]:
    return () if group.owner is None else (group.owner,)


def _require_manageable(group: Group, caller: Caller, sources: Sequence[str]) -> None:
    """Raises Refused for invalid labels, owners of unknown sources, and an owner that would lock
    the caller out.
    """
    require_none(label_violations("Group.labels", group.labels))
    for owner in (*_owners(group), *group.subscribers):
        require_known_source(owner, "Group", sources)
    if group.owner is not None and not caller.is_admin and not caller.owns(group.owner):
        raise Refused(
            "Provide an owner that includes you, you would not be able to manage this group later"
        )
