"""The schemas that a node knows, from its own metadata or from a registry."""

from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import Struct

from hermes_actors.metadata.catalog import Catalog
from hermes_actors.model.schema import Schema, SchemaKind


class SchemaVersion(Struct, frozen=True):
    """One version of a subject: its number (from 1), its schema, and the schema's id."""

    number: int
    id: int
    schema: Schema


def newest_of(versions: Mapping[int, SchemaVersion], kind: SchemaKind) -> SchemaVersion | None:
    """The newest of these versions in this language, or None."""
    return max(
        (each for each in versions.values() if each.schema.kind is kind), default=None, key=_number
    )


def _number(version: SchemaVersion) -> int:
    return version.number


class SchemaSource(Protocol):
    """Returns what is known of subjects' schemas immediately, and looks up the rest."""

    def versions_of(self, subject: str) -> Mapping[int, SchemaVersion]:
        """The known versions of a subject, by number, oldest first."""

    def lack(self, subject: str) -> str:
        """Why versions that the subject has, or must have, cannot be used now, so that no message
        may pass unchecked. Empty string if `versions_of` is complete, as far as is known.
        """

    def doubt(self, subject: str, version: int) -> str:
        """Why a version (0: any) that is missing from `versions_of` may exist nevertheless: the
        registry cannot be asked now. Empty string if it does not exist.
        """

    def by_id(self, schema_id: int) -> Schema | None:
        """The schema with this id, if it is known."""

    def ask(self, subject: str, done: Callable[[], None]) -> None:
        """Look up the subject's versions. `done` is called once, perhaps immediately, after the
        answer or a failure.
        """


class CatalogSchemas:
    """The schemas of the embedded registry, from the node's catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def versions_of(self, subject: str) -> dict[int, SchemaVersion]:
        """The versions of a subject, by number, oldest first."""
        ids = self._catalog.subjects.get(subject, {})
        return {
            number: SchemaVersion(number, ids[number], schema)
            for number, schema in self._catalog.versions_of(subject).items()
        }

    def lack(self, _subject: str) -> str:
        """Always empty: the catalog is complete."""
        return ""

    def doubt(self, _subject: str, _version: int) -> str:
        """Always empty: the catalog is complete."""
        return ""

    def by_id(self, schema_id: int) -> Schema | None:
        """The schema with this id, or None."""
        return self._catalog.schemas.get(schema_id)

    def ask(self, subject: str, done: Callable[[], None]) -> None:
        """Call `done` immediately: the catalog follows its log by itself."""
        done()
