"""Tries filters on a message without a subscription: what delivery would make of it."""

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from hermes_actors.config.admission import PropagationConfig
from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.filters.compiled import Candidate, Filters, problems
from hermes_actors.filters.failures import FilterFailed, FilterInvalid, NotJson
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.bodies.decoding import decode_plain
from hermes_actors.management.catalog.rules_subscriptions import require_fitting_filters
from hermes_actors.management.catalog.warnings import filter_warnings
from hermes_actors.metadata.catalog import LiveTopic
from hermes_actors.model.subscription import Filter


class FilterTest(Struct, frozen=True, kw_only=True):
    """The filters, and the message in Base64. Beyond Hermes: the message's propagated headers."""

    filters: list[Filter] = []
    message: str
    headers: dict[str, str] = {}


async def try_filters(
    _caller: Caller,
    live: Callable[[str], LiveTopic],
    topic: str,
    body: Mapping[str, Any],
    propagation: PropagationConfig,
) -> dict[str, Any]:
    """`status` MATCHED, NOT_MATCHED, or ERROR with `errorMessage`: a filter that takes too long.
    `warnings`, if there are, of filters that no message can pass as the frontends are configured.

    A trio coroutine. Raises Refused for a filter that no subscription to the topic could have.
    """
    owning = live(topic)
    asked = decode_plain(FilterTest, body)
    require_fitting_filters(asked.filters, owning.topic)
    if text := "; ".join(f"FilterTest.{each}" for each in problems(asked.filters)):
        raise Refused(text, ErrorCode.OTHER, 400)
    try:
        filters = Filters(asked.filters)
    except FilterInvalid as error:
        raise Refused(f"FilterTest.{error}", ErrorCode.OTHER, 400) from error
    try:
        message = base64.b64decode(asked.message, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Refused(f"FilterTest.message must be Base64: {error}") from error
    try:
        rejects = filters.rejects(Candidate(message, tuple(asked.headers.items())))
    except NotJson:
        return {"status": "NOT_MATCHED"}
    except FilterFailed as error:
        return {"status": "ERROR", "errorMessage": str(error)}
    warnings = list(filter_warnings(asked.filters, propagation))
    return {
        "status": "NOT_MATCHED" if rejects else "MATCHED",
        **({"warnings": warnings} if warnings else {}),
    }
