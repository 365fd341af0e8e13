"""Tries filters on a message without a subscription: what delivery would make of it."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from hermes_actors.config.publishing import PropagationConfig
from hermes_actors.errors import ErrorCode, Refused, Unavailable
from hermes_actors.filters.aside import Aside
from hermes_actors.filters.budget import Budget, BudgetSpent
from hermes_actors.filters.compiled import Candidate, Filters
from hermes_actors.filters.failures import FilterFailed, FilterInvalid, NotJson
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.bodies.constraints import FILTERS_MAX, problems_of
from hermes_actors.management.bodies.decoding import decode_base64, decode_plain
from hermes_actors.management.catalog.rules import require_fitting_filters
from hermes_actors.management.catalog.subjects import Subjects
from hermes_actors.management.catalog.topics import Topics
from hermes_actors.management.catalog.warnings import filter_warnings
from hermes_actors.model.subscription import Filter
from hermes_actors.model.topic import ContentType

_WAITING_MAX = 8
"""Each of them may wait for a second and more."""


class FilterTest(Struct, frozen=True, kw_only=True):
    """The filters, and the message in Base64. Beyond Hermes: the message's propagated headers."""

    filters: list[Filter] = []
    message: str
    headers: dict[str, str] = {}


class FilterTrials:
    """Tries filters of anybody, in `aside`, as the frontends' `propagation` is configured."""

    def __init__(
        self, topics: Topics, subjects: Subjects, propagation: PropagationConfig, aside: Aside
    ) -> None:
        self._topics = topics
        self._subjects = subjects
        self._propagation = propagation
        self._aside = aside

    async def make(self, _caller: Caller, topic: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """`status` MATCHED, NOT_MATCHED, or ERROR with `errorMessage`: filters that take too long,
        or a message that does not fit its AVRO topic, where it is JSON as for publishers.
        `warnings`, if there are, of filters that no message can pass as the frontends are
        configured.

        A trio coroutine. Raises Refused for a filter that no subscription to the topic could have,
        and Unavailable while many ask.
        """
        owning = self._topics.live(topic)
        asked = decode_plain(FilterTest, body)
        require_fitting_filters(asked.filters, owning.topic)
        if len(asked.filters) > FILTERS_MAX:
            raise Refused(f"FilterTest.filters size must be between 0 and {FILTERS_MAX}")
        if self._aside.waiting >= _WAITING_MAX:
            raise Unavailable(
                f"{self._aside.waiting} others try filters that take long; try again later"
            )
        if text := "; ".join(
            f"FilterTest.{each}" for each in await problems_of(asked.filters, self._aside)
        ):
            raise Refused(text, ErrorCode.OTHER, 400)
        try:
            filters = await self._aside.compile(asked.filters, Filters)
        except FilterInvalid as error:
            raise Refused(f"FilterTest.{error}", ErrorCode.OTHER, 400) from error
        message = decode_base64(asked.message, "FilterTest.message")
        decode: Callable[[bytes], Any] | None = None
        if owning.topic.content_type is ContentType.AVRO:
            try:
                message = await self._subjects.as_filters_see(topic, message)
            except Refused as error:
                return {"status": "ERROR", "errorMessage": error.message}
            decode = msgspec.json.decode
        candidate = Candidate(message, tuple(asked.headers.items()), decode)

        def ask(budget: Budget) -> str:
            return filters.rejects(candidate, budget)

        try:
            try:
                rejects = ask(self._aside.on_loop())
            except BudgetSpent as spent:
                rejects = await self._aside.ask(ask, message, spent)
        except NotJson:
            return {"status": "NOT_MATCHED"}
        except (FilterFailed, BudgetSpent) as error:
            return {"status": "ERROR", "errorMessage": str(error)}
        warnings = list(filter_warnings(asked.filters, self._propagation))
        return {
            "status": "NOT_MATCHED" if rejects else "MATCHED",
            **({"warnings": warnings} if warnings else {}),
        }
