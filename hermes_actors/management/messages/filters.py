"""Tries filters on a message, without a subscription, as delivery would apply them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from hermes_actors.config.publishing import PropagationConfig
from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.filters.work import MESSAGE_CPU_S, Verdict, verdict
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.bodies.constraints import FILTERS_MAX, problems_of
from hermes_actors.management.bodies.decoding import decode_base64, decode_plain
from hermes_actors.management.catalog.rules import require_fitting_filters
from hermes_actors.management.catalog.subjects import Subjects
from hermes_actors.management.catalog.topics import Topics
from hermes_actors.model.subscription import Filter
from hermes_actors.model.topic import ContentType
from hermes_actors.runtime.workers import TooCostly, WorkerPool


class FilterTest(Struct, frozen=True, kw_only=True):
    """The filters, the message in Base64, and (not in Hermes) the message's propagated headers."""

    filters: list[Filter] = []
    message: str
    headers: dict[str, str] = {}


class FilterTrials:
    """Tries filters in workers. Any caller may. `propagation`: the frontends' configuration."""

    def __init__(
        self, topics: Topics, subjects: Subjects, propagation: PropagationConfig, pool: WorkerPool
    ) -> None:
        self._topics = topics
        self._subjects = subjects
        self._propagation = propagation
        self._pool = pool

    async def make(self, _caller: Caller, topic: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Try the filters on the message.

        `status` in the answer is MATCHED, NOT_MATCHED, or ERROR with `errorMessage` if the filters
        take too long or the message does not conform to the AVRO topic's schema (it is given in
        JSON, as by publishers). `warnings` names filters that no message can pass because of the
        frontends' configuration.

        A trio coroutine. Raises Refused for a filter that the topic does not allow, and Unavailable
        while the workers are busy.
        """
        owning = self._topics.live(topic)
        asked = decode_plain(FilterTest, body)
        require_fitting_filters(asked.filters, owning.topic)
        if len(asked.filters) > FILTERS_MAX:
            raise Refused(f"FilterTest.filters size must be between 0 and {FILTERS_MAX}")
        if text := "; ".join(
            f"FilterTest.{each}" for each in await problems_of(asked.filters, self._pool)
        ):
            raise Refused(text, ErrorCode.OTHER, 400)
        message = decode_base64(asked.message, "FilterTest.message")
        is_avro = owning.topic.content_type is ContentType.AVRO
        if is_avro:
            try:
                message = await self._subjects.as_filters_see(topic, message)
            except Refused as error:
                return {"status": "ERROR", "errorMessage": error.message}
        args = (tuple(asked.filters), message, tuple(asked.headers.items()), is_avro)
        try:
            found: Verdict = await self._pool.ask("filters", MESSAGE_CPU_S, verdict, *args)
        except TooCostly as error:
            return {"status": "ERROR", "errorMessage": error.message}
        if not found.is_json:
            return {"status": "NOT_MATCHED"}
        if found.failure:
            return {"status": "ERROR", "errorMessage": found.failure}
        warnings = list(_warnings(asked.filters, self._propagation))
        return {
            "status": "NOT_MATCHED" if found.rejected_by else "MATCHED",
            **({"warnings": warnings} if warnings else {}),
        }


def _warnings(filters: Iterable[Filter], propagation: PropagationConfig) -> Iterator[str]:
    """Yield a warning for each filter by a header that the frontends do not store."""
    allowed = {name.lower() for name in propagation.allowed}
    for each in filters:
        if each.type != "header":
            continue
        if not propagation.enabled:
            yield (
                f"the filter by header {each.header} lets nothing pass: headers are not stored "
                "with messages unless frontend.propagation.enabled is on"
            )
        elif allowed and str(each.header).lower() not in allowed:
            yield (
                f"the filter by header {each.header} lets nothing pass: it is not among "
                "frontend.propagation.allowed"
            )
