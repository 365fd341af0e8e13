"""Applies a configuration: creates what is missing, changes what differs, deletes what it names.

A dry run does the same in a copy of the metadata, so it validates and decides alike.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import trio
from msgspec import Struct

from hermes_actors.errors import ErrorCode, HermesError, Refused
from hermes_actors.management.access.roles import Anonymous, Caller, require_allowed
from hermes_actors.management.access.table import rule_of
from hermes_actors.management.balancing.operating import WorkloadConstraints
from hermes_actors.management.bodies.decoding import PROBLEMS_MAX, require_none
from hermes_actors.management.catalog.groups import Groups
from hermes_actors.management.catalog.oauth_providers import OAuthProviders
from hermes_actors.management.catalog.subjects import Subjects
from hermes_actors.management.catalog.subscriptions import Subscriptions
from hermes_actors.management.catalog.topics import Topics, schema_for, schema_in
from hermes_actors.management.changes import Made, recorded
from hermes_actors.management.configuration.items import (
    Item,
    items_of,
    problems_of,
)
from hermes_actors.metadata.audit import differing
from hermes_actors.metadata.keys import GROUP, OAUTH, SUBSCRIPTION, TOPIC, key
from hermes_actors.metadata.registry import Metadata
from hermes_actors.metadata.schemas import SUBJECT
from hermes_actors.metadata.workload import CONSTRAINT
from hermes_actors.model.redaction import without_secret_fields

AT_ONCE = 4
"""How many changes of one level are under way at the same time."""

_SET_BY_BROKER = ("createdAt", "modifiedAt")


_KEYS = {
    "oauthProviders": OAUTH,
    "groups": GROUP,
    "topics": TOPIC,
    "subscriptions": SUBSCRIPTION,
    "workloadConstraints": CONSTRAINT,
}


_RULES = {
    "oauthProviders": rule_of("PUT", "/oauth/providers/{provider}"),
    "workloadConstraints": rule_of("PUT", "/workload-constraints/topic"),
}
"""The rules of kinds that only the gate checks otherwise."""

_WITHOUT_SECRETS = ("groups", "topics", "workloadConstraints")


@dataclass(frozen=True)
class Resources:
    """The parts that make the changes, and the metadata that they change."""

    metadata: Metadata
    groups: Groups
    oauth_providers: OAuthProviders
    subjects: Subjects
    topics: Topics
    subscriptions: Subscriptions
    workload_constraints: WorkloadConstraints

    def of(self, kind: str) -> tuple[Any, Mapping[str, Any]]:
        """The part for items of this kind, and the items that there are, by name."""
        catalog = self.metadata.catalog
        parts: dict[str, tuple[Any, Mapping[str, Any]]] = {
            "oauthProviders": (self.oauth_providers, catalog.oauth_providers),
            "groups": (self.groups, catalog.groups),
            "topics": (self.topics, catalog.topics),
            "subscriptions": (self.subscriptions, catalog.subscriptions),
            "workloadConstraints": (self.workload_constraints, catalog.constraints),
        }
        return parts[kind]


class Problem(Struct, frozen=True):
    """Why an item was not applied."""

    code: str
    message: str


class Applied(Struct, frozen=True, omit_defaults=True):
    """What became of one item. `action`: create, change, delete or none; empty with an error.

    `before` and `after` have the fields that differ, secrets masked; None if there is no item.
    """

    resource: str
    action: str = ""
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    error: Problem | None = None


class Apply:
    """Applies configurations to `real`. `rehearse` returns parts over a copy of its metadata."""

    def __init__(self, real: Resources, rehearse: Callable[[], Resources]) -> None:
        self._real = real
        self._rehearse = rehearse

    async def run(
        self, caller: Caller, body: Mapping[str, Any], *, dry_run: bool = False
    ) -> list[Applied]:
        """Apply groups, OAuth providers, topics, subscriptions and workload constraints. Fields
        that an item does not name keep their values. A trio coroutine.

        `body`: the lists `oauthProviders`, `groups`, `topics`, `subscriptions` and
        `workloadConstraints`, with items as in the REST API, and `delete`, an object with the same
        lists, of which only the names count. The answer has a row for each item, in the order in
        which they were applied. An error does not stop the others, except for items in a group or
        topic that failed. With `dry_run` nothing is written. Raises Refused and Unavailable.
        """
        # A configuration of many items is decoded in a few milliseconds.
        items = items_of({name: each for name, each in body.items() if name != "delete"})
        deletions = items_of(body.get("delete") or {})[::-1]
        run = _Run(self._rehearse() if dry_run else self._real, caller, self._rehearse)
        for level in _levels(items):
            await run.all(run.put, level)
        for level in _levels(deletions):
            await run.all(run.delete, level)
        return run.done


class _Run:
    def __init__(self, parts: Resources, caller: Caller, rehearse: Callable[[], Resources]) -> None:
        self.done: list[Applied] = []
        self._parts = parts
        self._caller = caller
        self._failed: set[str] = set()
        self._refused = 0
        self._rehearse = rehearse
        self._rehearsal: _Run | None = None

    async def all(self, act: Callable[[Item], Awaitable[None]], level: list[Item]) -> None:
        """Apply the items of one level, several at once."""
        found: dict[str, Applied] = {}
        items = iter(level)

        async def work() -> None:
            for item in items:
                found[item.resource] = await self._outcome(act, item)
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            for _ in range(AT_ONCE):
                nursery.start_soon(work)
        self.done += [found[each.resource] for each in level]
        self._failed |= {each.resource for each in self.done if each.error is not None}

    async def _outcome(self, act: Callable[[Item], Awaitable[None]], item: Item) -> Applied:
        try:
            if item.parent in self._failed:
                raise Refused(f"Skipped, because {item.parent} failed", ErrorCode.OTHER)
            schema = self._parts.subjects.latest(item.names[0]) if "schema" in item.body else None
            with recorded() as made:
                await act(item)
        except HermesError as error:
            self._refused += 1
            return Applied(item.resource, error=Problem(error.code.name, error.message))
        return _applied(item, made, None if schema is None else schema.text)

    async def put(self, item: Item) -> None:
        """Create the item, or change it. What is as it should be already needs no rights, except
        where that would confirm a guessed secret.
        """
        try:
            await self._put(item)
        except Refused as error:
            if error.status != 403 or item.kind not in _WITHOUT_SECRETS:
                raise
            self._rehearsal = rehearsal = self._rehearsal or _Run(
                self._rehearse(), Anonymous(), self._rehearse
            )
            if (await rehearsal._outcome(rehearsal._put, item)).action != "none":
                raise

    async def _put(self, item: Item) -> None:
        require_none(problems_of(item, suggests=self._refused < PROBLEMS_MAX))
        parts, names, body, who = self._parts, item.names, item.body, self._allowed(item)
        if item.kind == "workloadConstraints":
            constraints = parts.workload_constraints
            is_of_topic = len(names) == 1
            set_ = constraints.set_for_topic if is_of_topic else constraints.set_for_subscription
            await set_(body)
            return
        part, known = parts.of(item.kind)
        if "$".join(names) in known:
            await part.update(*who, *names, body)
        else:
            await part.create(*who, *names[:-1], body)
        if item.kind == "topics":
            self._require_newest(names[0], schema_in(body))

    def _require_newest(self, topic: str, schema: str | None) -> None:
        """Raises Refused if the schema is an older version of the topic's."""
        versions = [*self._parts.subjects.versions(topic).values()]
        live = self._parts.metadata.catalog.topics.get(topic)
        if schema is None or live is None:
            return
        wanted = schema_for(live.topic, schema)
        same = [each for each in versions if each.schema.is_same_as(wanted)]
        if same and same[-1] is not versions[-1]:
            raise Refused(
                f"Topic.schema is version {same[-1].number} of {topic}; the newest is "
                f"{versions[-1].number}, and an older version cannot become the newest; use that "
                "one",
                ErrorCode.SCHEMA_BAD_REQUEST,
            )

    async def delete(self, item: Item) -> None:
        """Delete the item."""
        part, _ = self._parts.of(item.kind)
        await part.delete(*self._allowed(item), *item.names)

    def _allowed(self, item: Item) -> tuple[Caller, ...]:
        """The caller, if the item's part checks the rights. Else they are checked here."""
        rule = _RULES.get(item.kind)
        if rule is None:
            return (self._caller,)
        require_allowed(self._caller, rule, f"change {item.resource}")
        return ()


def _levels(items: list[Item]) -> list[list[Item]]:
    """The items, in lists of the same kind."""
    levels: dict[str, list[Item]] = {}
    for each in items:
        levels.setdefault(each.kind, []).append(each)
    return list(levels.values())


def _applied(item: Item, made: list[Made], old_schema: str | None) -> Applied:
    """The row of an item for which these changes were made."""
    own = key(_KEYS[item.kind], *_key_names(item))
    changes = [each for each in made if each.key == own and each.before != each.after]
    versions = key(SUBJECT, item.names[0]) + "/"
    has_schema = any(e.key.startswith(versions) and e.before != e.after for e in made)
    if not changes and not has_schema:
        return Applied(item.resource, "none")
    old = _shown(changes[0].before) if changes else {}
    new = _shown(changes[-1].after) if changes else {}
    before, after = map(without_secret_fields, differing(old, new))
    if has_schema and after is not None:
        after["schema"] = schema_in(item.body)
        if before is not None:
            before["schema"] = old_schema
    action = "create" if before is None else "delete" if after is None else "change"
    return Applied(item.resource, action, before, after)


def _key_names(item: Item) -> tuple[str, ...]:
    """The names in the key of the item's register: a topic's group and name are separate there."""
    if item.kind in ("oauthProviders", "groups"):
        return item.names
    group, _, topic = item.names[0].rpartition(".")
    return (group, topic, *item.names[1:])


def _shown(body: bytes | None) -> dict[str, Any] | None:
    """The fields in a register's body that clients know."""
    if body is None:
        return None
    fields: dict[str, Any] = msgspec.json.decode(body)
    fields = fields.get("subscription", fields)
    return {name: each for name, each in fields.items() if name not in _SET_BY_BROKER}
