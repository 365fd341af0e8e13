"""The caller's roles, and the sources of owners."""

from collections.abc import Sequence
from typing import Any

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.management.access.roles import Caller, roles_of
from hermes_actors.management.catalog.subscriptions import Subscriptions
from hermes_actors.management.catalog.topics import Topics
from hermes_actors.model.topic import Owner


class Owners:
    """The owners of topics and subscriptions, from the given sources. Methods are trio
    coroutines.
    """

    def __init__(
        self, topics: Topics, subscriptions: Subscriptions, sources: Sequence[str]
    ) -> None:
        self._topics = topics
        self._subscriptions = subscriptions
        self._sources = sources

    async def roles(
        self, caller: Caller, topic: str | None = None, subscription: str | None = None
    ) -> list[str]:
        """The caller's roles, also for a topic and a subscription if they are given."""
        on_topic: tuple[Owner, ...] = ()
        on_subscription: tuple[Owner, ...] = ()
        if topic is not None:
            on_topic = self._topics.owners(self._topics.live(topic))
            if subscription is not None:
                found = self._subscriptions.live(topic, subscription)
                on_subscription = (found.subscription.owner,)
        return [role.value for role in roles_of(caller, on_topic, on_subscription)]

    async def sources(self) -> list[dict[str, Any]]:
        """The sources of owners."""
        return [
            {"name": source, "autocomplete": False, "deprecated": False} for source in self._sources
        ]

    async def one(self, source: str, owner_id: str) -> dict[str, Any]:
        """One owner of a source. Raises Refused with OWNER_SOURCE_NOT_FOUND."""
        self._require_source(source)
        return {"id": owner_id, "name": owner_id}

    async def found(self, source: str, search: str = "") -> list[dict[str, Any]]:
        """Search a source for owners. Always raises Refused: no built-in source can search."""
        self._require_source(source)
        raise Refused(
            f"Owner source {source} cannot search for '{search}'; give the id",
            ErrorCode.OWNER_SOURCE_DOESNT_SUPPORT_AUTOCOMPLETE,
        )

    def _require_source(self, source: str) -> None:
        if source not in self._sources:
            raise Refused(
                f"Owner source {source} does not exist; known are {', '.join(self._sources)}",
                ErrorCode.OWNER_SOURCE_NOT_FOUND,
            )
