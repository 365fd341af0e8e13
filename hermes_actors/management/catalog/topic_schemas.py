"""The schemas of topics, with Hermes' API. A topic's messages must conform to its schema."""

from collections.abc import Callable

from hermes_actors.config import ManagementConfig
from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.catalog.subjects import Subjects
from hermes_actors.management.catalog.topics import Topics, schema_for
from hermes_actors.schema.source import SchemaVersion


class TopicSchemas:
    """The schemas of topics. All methods are trio coroutines."""

    def __init__(self, topics: Topics, subjects: Subjects, config: ManagementConfig) -> None:
        self._topics = topics
        self._subjects = subjects
        self._config = config

    async def newest(self, topic: str) -> str | None:
        """The text of a topic's newest schema. None without a schema or without the topic."""
        return await self._text(topic, lambda _: True)

    async def version(self, topic: str, version: int) -> str | None:
        """The text of one version of a topic's schema. None if it does not exist."""
        return await self._text(topic, lambda each: each.number == version)

    async def by_id(self, topic: str, schema_id: int) -> str | None:
        """The text of the topic's schema with this id. None if it does not exist."""
        return await self._text(topic, lambda each: each.id == schema_id)

    async def _text(self, topic: str, is_it: Callable[[SchemaVersion], bool]) -> str | None:
        await self._subjects.look_up(topic)
        found = [each for each in self._subjects.versions(topic).values() if is_it(each)]
        return found[-1].schema.text if found else None

    async def save(self, caller: Caller, topic: str, schema: str) -> None:
        """Make the schema the newest version of the topic's schema. New messages must conform to
        it. Raises Refused and Unavailable.
        """
        live = self._topics.owned(caller, topic, "change the schema of topic")
        if not schema.strip():
            raise Refused("The body must be the schema's text", ErrorCode.FORMAT_ERROR)
        await self._subjects.register(topic, schema_for(live.topic, schema), live.topic)

    async def remove(self, caller: Caller, topic: str) -> None:
        """Delete all versions of the topic's schema: its messages are no longer checked.

        Raises Refused: 406 unless the operator allows it.
        """
        if not self._config.allow_schema_removal:
            raise Refused(
                "Removing schemas is disabled; the operator enables it with "
                "management.allow_schema_removal",
                ErrorCode.OPERATION_DISABLED,
            )
        self._topics.owned(caller, topic, "remove the schema of topic")
        await self._subjects.delete(topic)
