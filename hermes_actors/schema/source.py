"""The schemas that a node knows, wherever they are kept: in its own metadata or in a registry."""

from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import Struct

from hermes_actors.metadata.catalog import Catalog
from hermes_actors.model.schema import Schema, SchemaKind


class SchemaVersion(Struct, frozen=True):
    """One version of a subject: its number, from 1, the schema that it is, and that schema's id."""

    number: int
    id: int
    schema: Schema


def newest_of(versions: Mapping[int, SchemaVersion], kind: SchemaKind) -> SchemaVersion | None:
    """The newest of these versions in this language; None when there is none."""
    return max(
        (each for each in versions.values() if each.schema.kind is kind), default=None, key=_number
    )


def _number(version: SchemaVersion) -> int:
    return version.number


class SchemaSource(Protocol):
    """Tells at once what is known of subjects' schemas, and has looked up what is not."""

    def versions_of(self, subject: str) -> Mapping[int, SchemaVersion]:
        """The versions of a subject that are known now, by number, oldest first."""

    def lack(self, subject: str) -> str:
        """Why versions of a subject that it has, or must have, cannot be used now, so that nothing
        may pass unchecked; "" when `versions_of` tells all, or nothing speaks for more.
        """

    def doubt(self, subject: str, version: int) -> str:
        """Why a version (0: any) that `versions_of` does not tell may be there all the same: where
        they are kept cannot be asked now; "" when it is not there.
        """

    def by_id(self, schema_id: int) -> Schema | None:
        """The schema with this id, if it is known now."""

    def ask(self, subject: str, done: Callable[[], None]) -> None:
        """Have the subject's versions looked up where they are kept. `done` is called once, perhaps
        at once, when that has answered or could not.
        """


class CatalogSchemas:
    """The schemas of the embedded registry, as a node's catalog has them."""

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
        """Nothing is lacking: the catalog has what there is."""
        return ""

    def doubt(self, _subject: str, _version: int) -> str:
        """There is none: the catalog has what there is."""
        return ""

    def by_id(self, schema_id: int) -> Schema | None:
        """The schema with this id; None while there is none."""
        return self._catalog.schemas.get(schema_id)

    def ask(self, subject: str, done: Callable[[], None]) -> None:
        """Nobody knows more than the catalog, which follows its log by itself."""
        done()
