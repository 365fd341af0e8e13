"""Subjects of an external registry: it keeps the texts, and has the last word on new versions."""

from hermes_actors.actors.mailbox import Ref
from hermes_actors.config import ManagementConfig
from hermes_actors.management.catalog.subjects import Subjects, require_small
from hermes_actors.management.changes import Changes
from hermes_actors.metadata.commands import put
from hermes_actors.metadata.registry import Metadata
from hermes_actors.metadata.schemas import version_body, version_key
from hermes_actors.model.schema import Schema
from hermes_actors.model.topic import Topic
from hermes_actors.schema.aside import Costly
from hermes_actors.schema.client import RegistryClient
from hermes_actors.schema.source import SchemaSource


class ExternalSubjects(Subjects):
    """The subjects of topics in an external registry. The metadata holds the number and the id of
    each version that was registered here, by which every node is told of it at once.
    """

    def __init__(
        self,
        metadata: Metadata,
        changes: Changes,
        costly: Ref[Costly],
        config: ManagementConfig,
        source: SchemaSource,
        client: RegistryClient,
    ) -> None:
        super().__init__(metadata, changes, costly, config, source)
        self._client = client

    async def register(
        self, subject: str, schema: Schema, topic: Topic | None = None, *, is_first: bool = False
    ) -> int:
        """Make the schema a version of the subject, if it is none yet; return its id.

        The registry compares it with the others by its own rules. Where this fails afterwards, the
        version is in the registry, and saving it again tells the nodes.
        """
        require_small(schema)
        self._changes.require_current()
        if is_first:
            self.require_none(subject)
        await self.require_valid(subject, schema, topic)
        version = await self._client.register(subject, schema)
        key = version_key(subject, version.number)
        await self._changes.attempt(put(key, version_body(version.id)))
        await self._have_asked(subject)
        return version.id

    async def delete(self, subject: str) -> list[int]:
        """Delete all versions of a subject in the registry; return which there were."""
        deleted = await self._client.delete(subject)
        for change in self.deletions(subject):
            await self._changes.attempt(change)
        return deleted
