"""Subjects: the versions of schemas, their ids, and the rules before a new version is taken.

A topic's subject is its qualified name. Subjects of other names are whoever else's that uses the
registry.
"""

import trio

from hermes_actors.actors.mailbox import Ref
from hermes_actors.config import ManagementConfig
from hermes_actors.errors import ErrorCode, HermesError, Refused, Unavailable
from hermes_actors.management.changes import ATTEMPTS_MAX, Changes, contended
from hermes_actors.metadata.commands import Absent, Accepted, Change, StampIs, delete, put
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
from hermes_actors.schema.aside import Costly
from hermes_actors.schema.questions import Compiles, Question, Reads, Told
from hermes_actors.schema.validation import ask_aside

VERSIONS_MAX = 1_000
"""The versions that a subject may have; deleted ones do not count."""

SUBJECT_CHARACTERS_MAX = 249

_CPU_MAX_S = 2.0
_ANSWER_TIMEOUT_S = 30.0
_BACKWARD = (
    Compatibility.BACKWARD,
    Compatibility.BACKWARD_TRANSITIVE,
    Compatibility.FULL,
    Compatibility.FULL_TRANSITIVE,
)
_FORWARD = (
    Compatibility.FORWARD,
    Compatibility.FORWARD_TRANSITIVE,
    Compatibility.FULL,
    Compatibility.FULL_TRANSITIVE,
)
_TRANSITIVE = (
    Compatibility.BACKWARD_TRANSITIVE,
    Compatibility.FORWARD_TRANSITIVE,
    Compatibility.FULL_TRANSITIVE,
)


class Incompatible(Refused):
    """The schema does not agree with an earlier version as its subject demands."""


class Subjects:
    """The subjects of one datacentre's metadata.

    What changes something is a trio coroutine, and raises Refused and Unavailable.
    """

    def __init__(
        self,
        metadata: Metadata,
        changes: Changes,
        costly: Ref[Costly],
        config: ManagementConfig,
    ) -> None:
        self._metadata = metadata
        self._changes = changes
        self._costly = costly
        self._default = Compatibility(config.schema_compatibility)

    def names(self) -> list[str]:
        """The subjects that have versions, sorted."""
        return sorted(self._metadata.catalog.subjects)

    def versions(self, subject: str) -> dict[int, Schema]:
        """The versions of a subject, oldest first; none for one that is not there."""
        return self._metadata.catalog.versions_of(subject)

    def latest(self, subject: str) -> Schema | None:
        """The newest version of a subject."""
        return next(reversed(self.versions(subject).values()), None)

    def by_id(self, schema_id: int) -> Schema | None:
        """The schema with this id, also when no version is that any more."""
        return self._metadata.catalog.schemas.get(schema_id)

    def id_of(self, subject: str, version: int) -> int:
        """The id of the schema that this version of a subject is; the version is there."""
        return self._metadata.catalog.subjects[subject][version]

    def versions_with(self, schema_id: int) -> list[tuple[str, int]]:
        """The subjects and versions that are this schema."""
        return [
            (subject, version)
            for subject, ids in sorted(self._metadata.catalog.subjects.items())
            for version, each in sorted(ids.items())
            if each == schema_id
        ]

    def find(self, subject: str, schema: Schema) -> tuple[int, int] | None:
        """The version of a subject that says the same as this schema, and its id."""
        ids = self._metadata.catalog.subjects.get(subject, {})
        for version, known in reversed(self.versions(subject).items()):
            if known.is_same_as(schema):
                return version, ids[version]
        return None

    def own_level(self, subject: str) -> Compatibility | None:
        """The compatibility level that was set for the subject; for "" that of all others."""
        return self._metadata.catalog.compatibility.get(subject)

    def level(self, subject: str) -> Compatibility:
        """The compatibility level that the subject's new versions must keep."""
        return self.own_level(subject) or self.own_level("") or self._default

    async def register(self, subject: str, schema: Schema) -> int:
        """Make the schema a version of the subject, if it is none yet; return its id."""
        if len(subject) > SUBJECT_CHARACTERS_MAX:
            raise Refused(f"A subject has at most {SUBJECT_CHARACTERS_MAX} characters")
        for _ in range(ATTEMPTS_MAX):
            self._changes.require_current()
            known = self.find(subject, schema)
            if known is not None:
                return known[1]
            # What is there may change meanwhile: then the next version is another's.
            number = max(self._metadata.catalog.subjects.get(subject, {}), default=0) + 1
            if len(self.versions(subject)) >= VERSIONS_MAX:
                raise Refused(f"Subject {subject} has {VERSIONS_MAX} versions; delete some first")
            await self._require_valid(schema)
            await self._require_compatible(subject, schema, self._compared(subject))
            own_id = await self._store(schema)
            key = version_key(subject, number)
            change = put(key, version_body(own_id), Absent(key))
            if isinstance(await self._changes.attempt(change), Accepted):
                return own_id
        raise contended()

    async def _store(self, schema: Schema) -> int:
        """Store the schema's text, if it is not there yet; return its id."""
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
        """Delete all versions of a subject; return which there were. The schemas stay readable by
        their ids.
        """
        versions = sorted(self._metadata.catalog.subjects.get(subject, {}))
        for change in self.deletions(subject):
            await self._changes.attempt(change)
        return versions

    def deletions(self, subject: str) -> list[Change]:
        """The deletions of all versions that a subject has now, and of no later ones."""
        versions = sorted(self._metadata.catalog.subjects.get(subject, {}))
        return [self._deletion(subject, version) for version in versions]

    async def delete_version(self, subject: str, version: int) -> None:
        """Delete one version of a subject, if it is there."""
        if version in self._metadata.catalog.subjects.get(subject, {}):
            await self._changes.attempt(self._deletion(subject, version))

    def _deletion(self, subject: str, version: int) -> Change:
        register = self._metadata.register(version_key(subject, version))
        assert register is not None, "the catalog shows what registers hold"
        return delete(register.key, StampIs(register.key, register.stamp))

    async def set_level(self, subject: str, level: Compatibility | None) -> None:
        """Set the subject's own compatibility level, or (None) take it back; "" is all others'."""
        key = compatibility_key(subject)
        if level is not None:
            await self._changes.attempt(put(key, compatibility_body(level)))
        elif self.own_level(subject) is not None:
            await self._changes.attempt(delete(key))

    async def incompatibilities(
        self, subject: str, schema: Schema, compared: dict[int, Schema]
    ) -> list[str]:
        """Sentences on where the schema does not agree with these versions, as the subject's level
        demands; none where it does.
        """
        level = self.level(subject)
        found: list[str] = []
        for version, known in compared.items():
            if known.kind is not schema.kind:
                found.append(f"version {version} is {known.kind}, this is {schema.kind}")
                continue
            if level in _BACKWARD and not await self._reads(schema, known):
                found.append(f"it refuses messages that version {version} allows")
            if level in _FORWARD and not await self._reads(known, schema):
                found.append(f"it allows messages that version {version} refuses")
        return found

    def _compared(self, subject: str) -> dict[int, Schema]:
        """The versions that a new one is compared with."""
        versions = self.versions(subject)
        level = self.level(subject)
        if level is Compatibility.NONE or not versions:
            return {}
        if level in _TRANSITIVE:
            return versions
        newest = max(versions)
        return {newest: versions[newest]}

    async def _require_valid(self, schema: Schema) -> None:
        size = len(schema.text.encode())
        if size > SCHEMA_BYTES_MAX:
            raise Refused(f"The schema has {size} bytes; the most is {SCHEMA_BYTES_MAX}")
        if schema.kind is not SchemaKind.JSON:
            raise Refused(
                "Avro schemas are not supported by this version; use a JSON Schema",
                ErrorCode.OPERATION_DISABLED,
            )
        error = await self._ask(Compiles(schema.text))
        if error is not None:
            raise error

    async def _require_compatible(
        self, subject: str, schema: Schema, compared: dict[int, Schema]
    ) -> None:
        found = await self.incompatibilities(subject, schema, compared)
        if found:
            raise Incompatible(
                f"The schema is not compatible with subject {subject}, whose level is "
                f"{self.level(subject)}: {'; '.join(found)}. Change it, or the subject's level",
                ErrorCode.SCHEMA_BAD_REQUEST,
            )

    async def _reads(self, reader: Schema, writer: Schema) -> bool:
        error = await self._ask(Reads(reader.text, writer.text))
        if error is not None and not isinstance(error, Refused):
            raise error
        return error is None

    async def _ask(self, question: Question) -> HermesError | None:
        answered = trio.Event()
        answers: list[HermesError | None] = []
        is_late = False

        def done(error: Told) -> None:
            assert not isinstance(error, bytes), "no bytes are asked for"
            answers.append(error)
            answered.set()

        ask_aside(self._costly, Costly(question, _CPU_MAX_S, done, lambda: not is_late))
        with trio.move_on_after(_ANSWER_TIMEOUT_S):
            await answered.wait()
        is_late = True
        if not answers:
            raise Unavailable("Too many schemas wait to be asked; try again")
        return answers[0]
