"""Subjects: the versions of schemas, their ids, and the rules for new versions.

A topic's subject has the topic's qualified name. Subjects with other names belong to other users of
the registry.
"""

from collections.abc import Callable, Mapping
from typing import Any

import trio

from hermes_actors.config import ManagementConfig
from hermes_actors.errors import ErrorCode, Refused, Unavailable
from hermes_actors.management.changes import ATTEMPTS_MAX, Changes, contended
from hermes_actors.metadata.commands import (
    Absent,
    Accepted,
    Alive,
    Change,
    StampIs,
    delete,
    put,
)
from hermes_actors.metadata.keys import topic_key
from hermes_actors.metadata.registry import Metadata
from hermes_actors.metadata.schemas import (
    compatibility_body,
    compatibility_key,
    schema_body,
    schema_key,
    version_body,
    version_key,
)
from hermes_actors.model.schema import (
    SCHEMA_BYTES_MAX,
    Compatibility,
    Schema,
    SchemaKind,
    schema_id,
)
from hermes_actors.model.topic import ContentType, Topic
from hermes_actors.runtime.workers import TooCostly, WorkerPool
from hermes_actors.schema.avro import BodyForm
from hermes_actors.schema.client import RegistryClient
from hermes_actors.schema.compatibility import disagreements
from hermes_actors.schema.source import SchemaSource, SchemaVersion
from hermes_actors.schema.validation import without_schema
from hermes_actors.schema.work import (
    COMPARING_CPU_S,
    SCHEMA_CPU_S,
    TO_AVRO,
    compiles,
    decodes,
    message_cpu_s,
    takes,
)

VERSIONS_MAX = 1_000
"""The maximum number of versions of a subject, not counting deleted ones."""

SUBJECT_CHARACTERS_MAX = 249

_ANSWER_TIMEOUT_S = 30.0
_LOOK_UP_TIMEOUT_S = 10.0


class Incompatible(Refused):
    """The schema is not compatible with earlier versions, as the subject's level demands."""


class Subjects:
    """The subjects of one datacentre's metadata.

    Methods that change something are trio coroutines, and raise Refused and Unavailable.
    """

    def __init__(
        self,
        metadata: Metadata,
        changes: Changes,
        pool: WorkerPool,
        config: ManagementConfig,
        source: SchemaSource,
    ) -> None:
        self._metadata = metadata
        self._source = source
        self._changes = changes
        self._pool = pool
        self._default = Compatibility(config.schema_compatibility)
        self._needs_metadata = config.avro_metadata_required

    def names(self) -> list[str]:
        """The subjects that have versions, sorted."""
        return sorted(self._metadata.catalog.subjects)

    async def look_up(self, subject: str) -> None:
        """Look up the subject in an external registry, if there is one and its versions are not
        known. Raises Unavailable if that fails.
        """
        if not self._source.versions_of(subject):
            await self._have_asked(subject)
            lack = "" if self._source.versions_of(subject) else self._source.lack(subject)
            if lack:
                raise Unavailable(f"The schema of {subject} is not known: {lack}; try again")

    async def _have_asked(self, subject: str) -> None:
        asked = trio.Event()
        self._source.versions_of(subject)
        self._source.ask(subject, asked.set)
        with trio.move_on_after(_LOOK_UP_TIMEOUT_S):
            await asked.wait()

    def versions(self, subject: str) -> Mapping[int, SchemaVersion]:
        """The versions of a subject, oldest first. Empty for an unknown subject."""
        return self._source.versions_of(subject)

    def latest(self, subject: str) -> Schema | None:
        """The newest version of a subject. None if it has none."""
        versions = self.versions(subject)
        return versions[max(versions)].schema if versions else None

    def by_id(self, schema_id: int) -> Schema | None:
        """The schema with this id, even if no version has it any more."""
        return self._source.by_id(schema_id)

    def versions_with(self, schema_id: int) -> list[tuple[str, int]]:
        """The subjects and versions that have this schema."""
        return [
            (subject, version)
            for subject, ids in sorted(self._metadata.catalog.subjects.items())
            for version, each in sorted(ids.items())
            if each == schema_id
        ]

    def find(self, subject: str, schema: Schema) -> SchemaVersion | None:
        """The newest version of a subject that is the same schema as this one."""
        # The id is derived from the schema's content, so only a few versions are compared.
        ids = {schema_id(schema, attempt) for attempt in range(ATTEMPTS_MAX)}
        same = [each for each in self.versions(subject).values() if each.id in ids]
        return next((each for each in reversed(same) if each.schema.is_same_as(schema)), None)

    def own_level(self, subject: str) -> Compatibility | None:
        """The compatibility level that was set for the subject; "" means the global level."""
        return self._metadata.catalog.compatibility.get(subject)

    def level(self, subject: str) -> Compatibility:
        """The compatibility level that holds for new versions of the subject."""
        return self.own_level(subject) or self.own_level("") or self._default

    def require_none(self, subject: str) -> None:
        """Raises Refused if a topic that does not exist has schemas already, from an earlier topic
        or registered in advance: messages must not be checked by somebody else's schema.
        """
        if subject in self._metadata.catalog.subjects:
            raise Refused(
                f"Topic {subject} does not exist, but its schema does: it belongs to an earlier "
                f"topic that is being removed, to one that is being created, or was registered "
                f"beforehand; try again, or have an administrator delete subject {subject} in "
                "/schema-registry",
                ErrorCode.SCHEMA_ALREADY_EXISTS,
            )

    async def register(
        self, subject: str, schema: Schema, topic: Topic | None = None, *, is_first: bool = False
    ) -> int:
        """Make the schema a version of the subject, if it is not one yet. Returns its id.

        `topic`: the subject's topic, with its new settings; None if the subject has no topic. With
        `is_first` the subject must not have versions yet, also if somebody registers one at the
        same time.
        """
        require_small(schema)
        if len(subject) > SUBJECT_CHARACTERS_MAX:
            raise Refused(f"A subject has at most {SUBJECT_CHARACTERS_MAX} characters")
        for _ in range(ATTEMPTS_MAX):
            self._changes.require_current()
            owning = self._metadata.catalog.topics.get(subject)
            if is_first:
                self.require_none(subject)
            elif topic is not None and owning is None:
                raise Refused(f"Topic {subject} does not exist", ErrorCode.TOPIC_NOT_EXISTS)
            known = self.find(subject, schema)
            if known is not None:
                return known.id
            # If somebody registers a version meanwhile, this key is taken, and the put is rejected.
            key = self._next_version(subject)
            if len(self.versions(subject)) >= VERSIONS_MAX:
                raise Refused(f"Subject {subject} has {VERSIONS_MAX} versions; delete some first")
            await self.require_valid(subject, schema, topic)
            await self._require_compatible(subject, schema)
            own_id = await self._store(schema)
            conditions: list[Absent | Alive] = [Absent(key)]
            if owning is not None and not is_first:
                # Schemas of a deleted topic would block its name for others.
                conditions.append(Alive(topic_key(owning.name), owning.incarnation))
            change = put(key, version_body(own_id), *conditions)
            if isinstance(await self._changes.attempt(change), Accepted):
                return own_id
        raise contended()

    async def _store(self, schema: Schema) -> int:
        """Store the schema's text, if it is not stored yet. Returns its id."""
        for attempt in range(ATTEMPTS_MAX):
            own_id = schema_id(schema, attempt)
            held = self.by_id(own_id)
            if held is None:
                key = schema_key(own_id)
                await self._changes.attempt(put(key, schema_body(schema), Absent(key)))
                held = self.by_id(own_id)
            if held is not None and held.is_same_as(schema):
                return own_id
        raise contended()

    async def delete(self, subject: str) -> list[int]:
        """Delete all versions of a subject. Returns their numbers. The schemas can still be read by
        their ids.
        """
        versions = sorted(self._metadata.catalog.subjects.get(subject, {}))
        for change in self.deletions(subject):
            await self._changes.attempt(change)
        return versions

    def deletions(self, subject: str) -> list[Change]:
        """The changes that delete all present versions of a subject, but no later ones."""
        versions = sorted(self._metadata.catalog.subjects.get(subject, {}))
        return [self._deletion(subject, version) for version in versions]

    def has_no_more(self, subject: str) -> Absent:
        """The precondition that the subject has got no new version."""
        return Absent(self._next_version(subject))

    def _next_version(self, subject: str) -> str:
        versions = self._metadata.catalog.subjects.get(subject, {})
        return version_key(subject, max(versions, default=0) + 1)

    async def delete_version(self, subject: str, version: int) -> None:
        """Delete one version of a subject, if it exists."""
        if version in self._metadata.catalog.subjects.get(subject, {}):
            await self._changes.attempt(self._deletion(subject, version))

    def _deletion(self, subject: str, version: int) -> Change:
        register = self._metadata.register(version_key(subject, version))
        assert register is not None, "the catalog shows what registers hold"
        return delete(register.key, StampIs(register.key, register.stamp))

    async def set_level(self, subject: str, level: Compatibility | None) -> None:
        """Set a subject's compatibility level ("" for the global one), or remove it (None)."""
        key = compatibility_key(subject)
        if level is not None:
            await self._changes.attempt(put(key, compatibility_body(level)))
        elif self.own_level(subject) is not None:
            await self._changes.attempt(delete(key))

    async def disagreements(
        self, subject: str, schema: Schema, compared: Mapping[int, Schema]
    ) -> list[str]:
        """Why the schema is not compatible with these versions, by the subject's level. Empty if it
        is.
        """
        args = (self.level(subject), schema, dict(compared))
        found: list[str] = await self._ask(subject, COMPARING_CPU_S, disagreements, *args)
        return found

    def compared(self, subject: str, kind: SchemaKind) -> dict[int, Schema]:
        """The versions of this kind that the subject's level compares a new version with."""
        level = self.level(subject)
        if level is Compatibility.NONE:
            return {}
        versions = [each for each in self.versions(subject).values() if each.schema.kind is kind]
        first = 0 if level.endswith("_TRANSITIVE") else -1
        return {each.number: each.schema for each in versions[first:]}

    def _require_kind(self, subject: str, schema: Schema, topic: Topic | None) -> None:
        """Raises Refused if the schema's kind does not fit the subject's versions or its topic. A
        topic that migrates from JSON to AVRO may change the kind.
        """
        is_avro = topic is not None and topic.content_type is ContentType.AVRO
        if is_avro and schema.kind is not SchemaKind.AVRO:
            raise Refused(f"Topic {subject} is AVRO: its schemas must be Avro schemas")
        newest = self.latest(subject)
        is_migration = schema.kind is SchemaKind.AVRO and topic is not None
        way_out = TO_AVRO.format(topic=subject) if is_migration else "delete those first"
        if newest is not None and newest.kind is not schema.kind and not is_avro:
            raise Incompatible(
                f"The schemas of subject {subject} are of kind {newest.kind}, this one is "
                f"{schema.kind}; {way_out}",
                ErrorCode.SCHEMA_BAD_REQUEST,
            )

    async def require_valid(self, subject: str, schema: Schema, topic: Topic | None) -> None:
        """Raises Refused if the schema is invalid or unsuitable for the topic's messages, and
        Incompatible if its kind differs from that of the subject's versions.
        """
        require_small(schema)
        name = "" if topic is None else topic.name
        args = (schema, name, self._needs_metadata)
        await self._ask(subject, SCHEMA_CPU_S, compiles, *args)
        self._require_kind(subject, schema, topic)

    async def _require_compatible(self, subject: str, schema: Schema) -> None:
        compared = self.compared(subject, schema.kind)
        found = await self.disagreements(subject, schema, compared) if compared else []
        if found:
            raise Incompatible(
                f"The schema is not compatible with subject {subject}, whose level is "
                f"{self.level(subject)}: {'; '.join(found)}. Change it, or the subject's level",
                ErrorCode.SCHEMA_BAD_REQUEST,
            )

    async def as_filters_see(self, subject: str, body: bytes) -> bytes:
        """Convert a JSON message to Avro and back, by the subject's newest version. The result is
        the JSON that filters get. Raises Refused if the message does not conform, and Unavailable.
        """
        await self.look_up(subject)
        schema = self.latest(subject)
        if schema is None or schema.kind is not SchemaKind.AVRO:
            raise without_schema(subject, self._source)
        cpu_s = message_cpu_s(body)
        stored = await self._ask(subject, cpu_s, takes, schema, body, BodyForm.JSON, {})
        seen: bytes = await self._ask(subject, cpu_s, decodes, schema.text, stored, True)
        return seen

    async def _ask(self, owner: str, cpu_s: float, work: Callable[..., Any], *args: Any) -> Any:
        """Run work in a worker and return its result. Raises HermesError."""
        try:
            with trio.fail_after(_ANSWER_TIMEOUT_S):
                return await self._pool.ask(owner, cpu_s, work, *args)
        except TooCostly as error:
            raise Refused(f"The schema is too costly: {error.message}; make it simpler") from error
        except trio.TooSlowError:
            raise Unavailable("Too many schemas wait to be compiled; try again") from None


def require_small(schema: Schema) -> None:
    """Raises Refused if the schema is longer than SCHEMA_BYTES_MAX."""
    size = len(schema.text.encode())
    if size > SCHEMA_BYTES_MAX:
        raise Refused(f"The schema has {size} bytes; the maximum is {SCHEMA_BYTES_MAX}")


class ExternalSubjects(Subjects):
    """The subjects of topics in an external registry. The metadata has the number and id of each
    version that was registered here, so that all nodes know it at once.
    """

    def __init__(
        self,
        metadata: Metadata,
        changes: Changes,
        pool: WorkerPool,
        config: ManagementConfig,
        source: SchemaSource,
        client: RegistryClient,
    ) -> None:
        super().__init__(metadata, changes, pool, config, source)
        self._client = client

    async def register(
        self, subject: str, schema: Schema, topic: Topic | None = None, *, is_first: bool = False
    ) -> int:
        """Make the schema a version of the subject, if it is not one yet. Returns its id.

        The registry checks compatibility by its own rules. If this fails after the registration,
        register again, so that the nodes learn of the version.
        """
        require_small(schema)
        self._changes.require_current()
        if is_first:
            self.require_none(subject)
        await self.require_valid(subject, schema, topic)
        version = await self._client.register(subject, schema)
        key, body = version_key(subject, version.number), version_body(version.id)
        held = self._metadata.register(key)
        if held is None or held.body != body:
            await self._changes.attempt(put(key, body))
        await self._have_asked(subject)
        return version.id

    async def delete(self, subject: str) -> list[int]:
        """Delete all versions of a subject in the registry. Returns their numbers."""
        deleted = await self._client.delete(subject)
        for change in self.deletions(subject):
            await self._changes.attempt(change)
        return deleted


class RehearsedSubjects(Subjects):
    """Checks new versions for a rehearsal, and registers nothing in the external registry, whose
    rules of compatibility are not known here.
    """

    async def register(
        self, subject: str, schema: Schema, topic: Topic | None = None, *, is_first: bool = False
    ) -> int:
        """As `Subjects.register`, with an id that the registry will not use."""
        require_small(schema)
        if is_first:
            self.require_none(subject)
        newest = self.latest(subject)
        if newest is None or not newest.is_same_as(schema):
            await self.require_valid(subject, schema, topic)
            change = put(self._next_version(subject), version_body(schema_id(schema)))
            await self._changes.attempt(change)
        return schema_id(schema)
