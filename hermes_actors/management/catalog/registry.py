"""The schema registry with the API of Confluent's: subjects, versions, ids, compatibility.

Its errors have Confluent's codes; the first three digits of a code are the HTTP status.
"""

import re
from collections.abc import Mapping
from typing import Any

from hermes_actors.config import ManagementConfig
from hermes_actors.errors import Refused
from hermes_actors.management.access.roles import Caller, require_owner
from hermes_actors.management.catalog.subjects import Incompatible, Subjects
from hermes_actors.management.catalog.topics import Topics
from hermes_actors.model.schema import Compatibility, Schema, SchemaKind
from hermes_actors.model.topic import Owner, Topic
from hermes_actors.schema.source import SchemaVersion

LATEST = ("latest", "-1")

_VALUE_SUFFIX = "-value"
_NUMBER = re.compile(r"[0-9]{1,10}")


class RegistryError(Exception):
    """An error in Confluent's format: a code and a text."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number
        self.message = message

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.number if self.number < 1_000 else self.number // 100


class SchemaRegistry:
    """The requests that Confluent's clients make to a registry. All methods are trio coroutines.

    Beside RegistryError they raise Refused and Unavailable.
    """

    def __init__(self, topics: Topics, subjects: Subjects, config: ManagementConfig) -> None:
        self._topics = topics
        self._subjects = subjects
        self._config = config

    async def names(self, subject_prefix: str = "") -> list[str]:
        """The subjects with this prefix, sorted. A leading ":*:" (all contexts) is ignored."""
        prefix = subject_prefix.removeprefix(":*:")
        return [each for each in self._subjects.names() if each.startswith(prefix)]

    async def versions(self, subject: str) -> list[int]:
        """The versions of a subject."""
        return sorted(self._found(self._own_name(subject)))

    async def version(self, subject: str, version: str) -> dict[str, Any]:
        """One version of a subject: a number, `latest` or -1."""
        return _shown(subject, self._version(self._own_name(subject), version))

    async def lookup(self, subject: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The version of a subject that is the same schema as the body's."""
        name = self._own_name(subject)
        self._found(name)
        found = self._subjects.find(name, _schema_in(body))
        if found is None:
            raise RegistryError(40403, "Schema not found")
        return _shown(subject, found)

    async def register(
        self, caller: Caller, subject: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Make the body's schema a version of the subject. Returns its id."""
        name = self._own_name(subject)
        self._require_changeable(caller, name)
        try:
            return {"id": await self._subjects.register(name, _schema_in(body), self._topic(name))}
        except Incompatible as error:
            raise RegistryError(409, error.message) from error
        except Refused as error:
            raise RegistryError(42201, error.message) from error

    async def delete(self, caller: Caller, subject: str) -> list[int]:
        """Delete all versions of a subject. Returns their numbers."""
        name = self._own_name(subject)
        self._found(name)
        self._require_removable(caller, name)
        return await self._subjects.delete(name)

    async def delete_version(self, caller: Caller, subject: str, version: str) -> int:
        """Delete one version of a subject. Returns its number."""
        name = self._own_name(subject)
        number = self._version(name, version).number
        self._require_removable(caller, name)
        await self._subjects.delete_version(name, number)
        return number

    async def by_id(self, schema_id: int) -> dict[str, Any]:
        """A schema by its id."""
        schema = self._subjects.by_id(schema_id)
        if schema is None:
            raise RegistryError(40403, f"Schema {schema_id} not found")
        return {"schema": schema.text, **_kind_of(schema)}

    async def versions_with(self, schema_id: int) -> list[dict[str, Any]]:
        """The subjects and versions that have the schema with this id."""
        await self.by_id(schema_id)
        return [
            {"subject": subject, "version": version}
            for subject, version in self._subjects.versions_with(schema_id)
        ]

    async def subjects_with(self, schema_id: int) -> list[str]:
        """The subjects that have the schema with this id."""
        return sorted({each["subject"] for each in await self.versions_with(schema_id)})

    async def compatibility(
        self, subject: str, version: str, body: Mapping[str, Any], *, verbose: bool = False
    ) -> dict[str, Any]:
        """Check if the body's schema is compatible with a version of the subject, or (version "")
        with all versions that the subject's level demands. With `verbose`, `messages` has the
        reasons if it is not.
        """
        name = self._own_name(subject)
        schema = _schema_in(body)
        versions = self._subjects.compared(name, schema.kind)
        if version and (self._subjects.latest(name) or version not in LATEST):
            known = self._version(name, version)
            versions = {known.number: known.schema}
        try:
            await self._subjects.require_valid(name, schema, self._topic(name))
            found = await self._subjects.disagreements(name, schema, versions)
        except Incompatible as error:
            found = [error.message]
        except Refused as error:
            raise RegistryError(42201, error.message) from error
        return {"is_compatible": not found, **({"messages": found} if verbose else {})}

    async def level(self, subject: str, default_to_global: bool = False) -> dict[str, Any]:
        """The compatibility level of a subject; "" means the global level. With
        `default_to_global`, a subject without its own level has the global one.
        """
        name = self._own_name(subject)
        level = self._subjects.own_level(name)
        if level is None and not default_to_global and name:
            raise RegistryError(
                40408, f"Subject '{subject}' does not have subject-level compatibility configured"
            )
        return {"compatibilityLevel": level or self._subjects.level(name)}

    async def set_level(
        self, caller: Caller, subject: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Set the compatibility level of a subject; "" means the global level."""
        name = self._own_name(subject)
        self._require_changeable(caller, name)
        level = body.get("compatibility")
        if level not in list(Compatibility):
            known = ", ".join(Compatibility)
            raise RegistryError(
                42203, f"compatibility must be one of {known}, not {str(level)[:20]!r}"
            )
        await self._subjects.set_level(name, Compatibility(level))
        return {"compatibility": level}

    async def drop_level(self, caller: Caller, subject: str) -> dict[str, Any]:
        """Remove the subject's own compatibility level. Returns the removed level."""
        name = self._own_name(subject)
        self._require_changeable(caller, name)
        level = self._subjects.own_level(name)
        if level is None:
            raise RegistryError(40401, f"Subject '{subject}' not found.")
        await self._subjects.set_level(name, None)
        return {"compatibility": level}

    def _own_name(self, subject: str) -> str:
        """The subject's name here. Kafka's tools call a topic's subject `<topic>-value`."""
        plain = subject.removesuffix(_VALUE_SUFFIX)
        return plain if plain != subject and self._topics.exists(plain) else subject

    def _topic(self, name: str) -> Topic | None:
        """The topic with this subject; None if there is none."""
        return self._topics.live(name).topic if self._topics.exists(name) else None

    def _found(self, name: str) -> Mapping[int, SchemaVersion]:
        versions = self._subjects.versions(name)
        if not versions:
            raise RegistryError(40401, f"Subject '{name}' not found.")
        return versions

    def _version(self, name: str, version: str) -> SchemaVersion:
        versions = self._found(name)
        number = max(versions) if version in LATEST else _number(version)
        if number not in versions:
            raise RegistryError(40402, f"Version {number} not found.")
        return versions[number]

    def _require_changeable(self, caller: Caller, name: str) -> None:
        """Raises Refused (403) unless the caller is an owner of the topic or an administrator."""
        owners: tuple[Owner, ...] = ()
        if self._topics.exists(name):
            owners = self._topics.owners(self._topics.live(name))
        require_owner(caller, f"change the schemas of subject {name}", *owners)

    def _require_removable(self, caller: Caller, name: str) -> None:
        self._require_changeable(caller, name)
        if not self._config.allow_schema_removal:
            raise RegistryError(
                42205,
                "Removing schemas is disabled; the operator enables it with "
                "management.allow_schema_removal",
            )


def _schema_in(body: Mapping[str, Any]) -> Schema:
    text, kind = body.get("schema"), body.get("schemaType") or SchemaKind.AVRO.value
    if not isinstance(text, str):
        raise RegistryError(42201, "schema must be a string: the schema's text")
    if kind not in list(SchemaKind):
        raise RegistryError(42201, f"schemaType must be one of {', '.join(SchemaKind)}")
    if body.get("references"):
        raise RegistryError(42201, "references are not supported: put all into one schema")
    return Schema(SchemaKind(kind), text)


def _shown(subject: str, found: SchemaVersion) -> dict[str, Any]:
    named = {"subject": subject, "version": found.number, "id": found.id}
    return {**named, **_kind_of(found.schema), "schema": found.schema.text}


def _kind_of(schema: Schema) -> dict[str, Any]:
    """The schemaType as in Confluent's registry, which leaves it out for Avro."""
    return {} if schema.kind is SchemaKind.AVRO else {"schemaType": schema.kind.value}


def _number(version: str) -> int:
    if _NUMBER.fullmatch(version) is None or not 0 < int(version) < 2**31:
        raise RegistryError(
            42202,
            f"The specified version '{version[:20]}' is not a valid version id. Allowed values are "
            'between [1, 2^31-1] and the string "latest"',
        )
    return int(version)
