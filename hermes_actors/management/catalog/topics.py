"""Topics: created, shown, changed and removed. A topic's log topic is created before the topic."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import replace

from hermes_actors.config import Config
from hermes_actors.errors import ErrorCode, Refused, Unavailable
from hermes_actors.log.base import Log
from hermes_actors.management.access.roles import Caller, group_named, owners_of, require_owner
from hermes_actors.management.bodies.constraints import require_valid_topic
from hermes_actors.management.bodies.decoding import (
    decode_topic,
    merge,
    required_text,
    without_label_list,
)
from hermes_actors.management.bodies.views import topic_view
from hermes_actors.management.catalog.rules import (
    require_content_type_kept,
    require_creatable,
    require_open_group,
    require_schema,
    require_updatable,
)
from hermes_actors.management.catalog.subjects import Subjects
from hermes_actors.management.changes import ATTEMPTS_MAX, Changes, contended
from hermes_actors.metadata.bodies import topic_body
from hermes_actors.metadata.catalog import LiveTopic
from hermes_actors.metadata.commands import (
    Absent,
    Accepted,
    Alive,
    Change,
    Childless,
    StampIs,
    delete,
    put,
)
from hermes_actors.metadata.keys import (
    group_key,
    log_topic_of,
    subscription_key,
    subscriptions_below,
    topic_key,
)
from hermes_actors.metadata.reconciler import settings_for
from hermes_actors.metadata.registry import Metadata, OutcomeUnknown
from hermes_actors.model.names import TopicName
from hermes_actors.model.schema import Schema, SchemaKind
from hermes_actors.model.topic import COPIES_MIN, ContentType, Durability, Owner, Topic
from hermes_actors.runtime.clock import Clock
from hermes_actors.runtime.turns import each_in_turns


class Topics:
    """The topics of one datacentre's metadata, and their log topics in that datacentre's log.

    Its coroutines run in trio.
    """

    def __init__(
        self,
        metadata: Metadata,
        log: Log,
        changes: Changes,
        subjects: Subjects,
        config: Config,
        clock: Clock,
    ) -> None:
        self._metadata = metadata
        self._log = log
        self._changes = changes
        self._subjects = subjects
        self._config = config
        self._clock = clock

    async def names(self, group_name: str | None = None, *, tracked: bool = False) -> list[str]:
        """The qualified names of all topics, or of one group's, sorted. `tracked`: only tracked
        ones.

        Raises Refused with GROUP_NOT_EXISTS.
        """
        catalog = self._metadata.catalog
        if group_name is not None:
            self._require_group(group_name)
        return [
            name
            for name in sorted(catalog.topics)
            if (group_name is None or catalog.topics[name].name.group == group_name)
            and (not tracked or catalog.topics[name].topic.tracking_enabled)
        ]

    async def get(self, name: str) -> dict[str, Any]:
        """One topic's JSON object, with its newest schema. Raises Refused with TOPIC_NOT_EXISTS."""
        view = topic_view(self.live(name).topic)
        with suppress(Unavailable):
            # The other fields are shown without it.
            await self._subjects.look_up(name)
        schema = self._subjects.latest(name)
        return view if schema is None else {**view, "schema": schema.text}

    async def of_owner(self, source: str, owner_id: str) -> list[dict[str, Any]]:
        """The JSON objects of all topics of one owner, sorted by name."""
        owner = Owner(source, owner_id)
        owned = [each.topic for each in self._metadata.catalog.topics.values()]
        owned = sorted([each for each in owned if each.owner == owner], key=lambda each: each.name)
        return [topic_view(each) async for each in each_in_turns(owned)]

    async def clients(self, name: str) -> list[str]:
        """The distinct ids of the owners of a topic's subscriptions, sorted."""
        topic = self.live(name)
        owners = {
            each.subscription.owner.id
            for each in self._metadata.catalog.subscriptions_of(topic.name)
        }
        return sorted(owners)

    async def create(self, caller: Caller, body: Mapping[str, Any]) -> None:
        """Create a topic, after its schema and its log topic. Raises Refused and Unavailable."""
        self._changes.require_current()
        topic, _ = self._creation(caller, body)
        self._subjects.require_none(topic.name)
        versions: list[Change] = []
        try:
            if schema := schema_in(body):
                # Registered before the topic exists, so that no message is stored unchecked.
                wanted = schema_for(topic, schema)
                await self._subjects.register(topic.name, wanted, topic, is_first=True)
                versions = self._subjects.deletions(topic.name)
            await self._create_log_topic(topic)
            await self._changes.make(lambda: self._creation(caller, body)[1])
        except OutcomeUnknown:
            # The topic may exist, and need the schema.
            raise
        except (Refused, Unavailable):
            # Somebody else may have created a topic of this name, which must not get this schema.
            for each in versions:
                await self._changes.attempt(each)
            raise

    def _creation(self, caller: Caller, body: Mapping[str, Any]) -> tuple[Topic, Change]:
        name = TopicName.parse(required_text(body, "name", "Topic"))
        incarnation = self._require_group(name.group)
        topic = self._decoded(body)
        require_valid_topic(topic)
        require_creatable(topic, caller, self._config.management)
        require_open_group(group_named(self._metadata.catalog, name.group), caller)
        if str(name) in self._metadata.catalog.topics:
            raise Refused(f"Topic {name} already exists", ErrorCode.TOPIC_ALREADY_EXISTS)
        require_schema(topic, schema_in(body))
        now_s = self._clock.now_ms() / 1_000
        key = topic_key(name)
        stored = topic_body(replace(topic, created_at=now_s, modified_at=now_s))
        return topic, put(key, stored, Absent(key), Alive(group_key(name.group), incarnation))

    def _decoded(self, body: Mapping[str, Any]) -> Topic:
        default = self._config.management.default_fallback_to_remote_datacenter
        return decode_topic(body, default_fallback=default)

    async def _create_log_topic(self, topic: Topic) -> None:
        """Create the log topic for the topic's next incarnation. It stays if the creation of the
        topic fails afterwards.
        """
        if topic.is_in_memory:
            return
        name = TopicName.parse(topic.name)
        register = self._metadata.register(topic_key(name))
        # The tombstone of a deleted topic holds the incarnation of the next one.
        incarnation = 0 if register is None else register.incarnation
        log_topic = log_topic_of(name, incarnation, self._metadata.namespace)
        try:
            await self._log.topics.create(log_topic, settings_for(topic, self._config))
        except ValueError as error:
            # A name that collides with another topic's in Kafka, or a policy of the cluster.
            raise Refused(f"Topic {name} cannot be stored: {error}") from error

    async def update(self, caller: Caller, name: str, patch: Mapping[str, Any]) -> None:
        """Change the fields that the patch names. Raises Refused and Unavailable."""
        schema = schema_in(patch)

        def plan() -> tuple[LiveTopic, Topic]:
            old = self.owned(caller, name, "change topic")
            base = msgspec.to_builtins(old.topic)
            if patch.get("durability", base["durability"]) != base["durability"]:
                # Unless the patch names it, the new durability decides.
                del base["ack"]
            merged = self._decoded(merge(base, without_label_list(patch)))
            new = replace(
                merged, created_at=old.topic.created_at, modified_at=old.topic.modified_at
            )
            require_valid_topic(new)
            require_updatable(old.topic, new, caller, self._config.management)
            has_avro = bool(schema) or self._has_avro(name)
            require_content_type_kept(old.topic, new, has_schema=has_avro)
            return old, new

        def decide() -> Change | None:
            old, new = plan()
            if new == old.topic:
                return None
            new = replace(new, modified_at=self._clock.now_ms() / 1_000)
            key = topic_key(old.name)
            return put(key, topic_body(new), StampIs(key, old.stamp))

        if schema or "contentType" in patch:
            await self._subjects.look_up(name)
        if schema:
            # The rest of the patch must be valid before the schema is registered.
            old, new = plan()
            try:
                await self._subjects.register(name, schema_for(new, schema), new)
            except Refused as error:
                if new.content_type is not old.topic.content_type:
                    # As Hermes answers a migration.
                    raise Refused(error.message, ErrorCode.SCHEMA_BAD_REQUEST) from error
                raise
        if "durability" in patch:
            old, new = plan()
            if new.durability is Durability.CONSISTENT is not old.topic.durability:
                # First, because the log may be unable to give it.
                await self._require_copies(old)
        await self._changes.make(decide)

    async def _require_copies(self, live: LiveTopic) -> None:
        topics = self._log.topics
        held = await topics.describe(live.log_topic)
        try:
            if held is not None:
                await topics.alter(live.log_topic, replace(held, copies_min=COPIES_MIN))
        except ValueError as error:
            raise Refused(f"Topic {live.name} cannot be changed: {error}") from error

    def _has_avro(self, name: str) -> bool:
        newest = self._subjects.latest(name)
        return newest is not None and newest.kind is SchemaKind.AVRO

    async def delete(self, caller: Caller, name: str) -> None:
        """Remove a topic, its auto-deleted subscriptions first. Raises Refused and Unavailable.

        Its records are deleted later, by the reconciler.
        """
        if not self._config.management.allow_removal:
            raise Refused(
                "Removing topics is disabled; the operator enables it with "
                "management.allow_removal",
                ErrorCode.OPERATION_DISABLED,
            )
        for _ in range(ATTEMPTS_MAX):
            self._changes.require_current()
            topic = self.owned(caller, name, "remove topic")
            self._require_removable(topic)
            for child in self._metadata.catalog.subscriptions_of(topic.name):
                child_key = subscription_key(child.name)
                await self._changes.attempt(delete(child_key, StampIs(child_key, child.stamp)))
            key = topic_key(topic.name)
            # Computed before the deletion: a new topic of this name may register versions at once.
            versions = self._subjects.deletions(name)
            change = delete(
                key,
                Alive(key, topic.incarnation),
                Childless(subscriptions_below(topic.name)),
                self._subjects.has_no_more(name),
            )
            if isinstance(await self._changes.attempt(change), Accepted):
                for each in versions:
                    await self._changes.attempt(each)
                return
        raise contended()

    def _require_removable(self, topic: LiveTopic) -> None:
        keeping = [
            each.name.name
            for each in self._metadata.catalog.subscriptions_of(topic.name)
            if not each.subscription.auto_delete_with_topic_enabled
        ]
        if keeping:
            count = "1 subscription" if len(keeping) == 1 else f"{len(keeping)} subscriptions"
            raise Refused(
                f"Topic {topic.name} is not empty: it has {count} without "
                f"autoDeleteWithTopicEnabled, for example {keeping[0]}; remove them first",
                ErrorCode.TOPIC_NOT_EMPTY,
            )

    def live(self, name: str) -> LiveTopic:
        """The topic as it is now, without waiting. Raises Refused with TOPIC_NOT_EXISTS."""
        topic = self._metadata.catalog.topics.get(name)
        if topic is None:
            raise Refused(f"Topic {name} does not exist", ErrorCode.TOPIC_NOT_EXISTS)
        return topic

    def owned(self, caller: Caller, name: str, action: str) -> LiveTopic:
        """The topic, for an action of its owners and administrators. Raises Refused."""
        topic = self.live(name)
        require_owner(caller, f"{action} {name}", *self.owners(topic))
        return topic

    def exists(self, name: str) -> bool:
        """True if the topic exists now."""
        return name in self._metadata.catalog.topics

    def owners(self, live: LiveTopic) -> tuple[Owner, ...]:
        """The owners who may manage the topic: its own, and its group's if it has one."""
        return owners_of(self._metadata.catalog, live.name, live.topic.owner)

    def _require_group(self, name: str) -> int:
        """The group's incarnation. Raises Refused with GROUP_NOT_EXISTS."""
        group = self._metadata.catalog.groups.get(name)
        if group is None:
            raise Refused(f"Group {name} does not exist", ErrorCode.GROUP_NOT_EXISTS)
        return group.incarnation


def schema_in(body: Mapping[str, Any]) -> str | None:
    """The schema in a body. None if it is missing or blank."""
    schema = body.get("schema")
    if schema is None:
        return None
    text = schema if isinstance(schema, str) else msgspec.json.encode(schema).decode()
    return text if text.strip() else None


def schema_for(topic: Topic, text: str) -> Schema:
    """The text as a schema of the topic's kind: Avro or JSON Schema."""
    is_avro = topic.content_type is ContentType.AVRO or topic.json_to_avro_dry_run
    return Schema(SchemaKind.AVRO if is_avro else SchemaKind.JSON, text)
