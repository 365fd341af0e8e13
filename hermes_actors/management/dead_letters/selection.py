"""The selection of dead letters in a request's body or query, as a filter."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.management.bodies.decoding import converted, without_nulls
from hermes_actors.model.dead_letter import DiscardReason, LetterFilter
from hermes_actors.model.moments import moment_ms

IDS_MAX = 1_000
"""The maximum number of letter ids in one request."""

RATE_DEFAULT = 50
RATE_MAX = 10_000

_ID = re.compile(r"[a-zA-Z0-9_.-]+:[0-9]{1,19}:[0-9]{1,10}:[0-9]{1,19}")
_Words = str | int | list[str | int]
"""One word, or several in a list or separated by commas."""
_Status = Annotated[int, Meta(ge=0, le=999)]


class LetterSelection(
    Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """The selected letters; `all` if there are no other criteria. `dry_run` only counts them."""

    ids: Annotated[list[str], Meta(min_length=1, max_length=IDS_MAX)] | None = None
    reason: _Words | None = None
    status: _Words | None = None
    message_id: str = ""
    since: str | int | None = None
    until: str | int | None = None
    all: bool = False
    dry_run: bool = False

    def filter(self, now_ms: int) -> LetterFilter:
        """The filter for these criteria. Raises Refused."""
        return LetterFilter(
            ids=tuple(check_id(each) for each in self.ids or ()),
            reasons=tuple(converted(list[DiscardReason], _words(self.reason), "reason")),
            statuses=tuple(converted(list[_Status], _words(self.status), "status")),
            message_id=self.message_id,
            since_ms=_time("since", self.since, now_ms),
            until_ms=_time("until", self.until, now_ms),
        )


class RedriveRequest(LetterSelection, frozen=True, kw_only=True, rename="camel"):
    """The letters to deliver again. The rate is a maximum in each datacentre."""

    rate_per_second: Annotated[int, Meta(ge=1, le=RATE_MAX)] = RATE_DEFAULT


L = TypeVar("L", bound=LetterSelection)


def selection_in(kind: type[L], body: Mapping[str, Any], action: str) -> L:
    """Decode the body. It must have either criteria or `{"all":true}`. Raises Refused."""
    given = without_nulls(body)
    selection = converted(kind, given)
    named = given.keys() - {"all", "dryRun", "ratePerSecond"}
    if selection.all == bool(named):
        raise Refused(
            f"Choose the dead letters to {action}: by ids, reason, status, messageId, since, "
            "until, "
            'or all of them with {"all":true}, not both'
        )
    return selection


def check_id(text: str) -> str:
    """Return the text if it is the id of a letter. Raises Refused."""
    if not _ID.fullmatch(text):
        raise Refused(
            f"'{text}' is not the id of a dead letter, such as dc1:0:3:1042 "
            "(datacentre, life of the subscription, partition, offset)",
            ErrorCode.FORMAT_ERROR,
        )
    return text


def _words(value: _Words | None) -> list[str]:
    given = value if isinstance(value, list) else [] if value is None else [value]
    words = [word.strip() for each in given for word in str(each).split(",")]
    return [word for word in words if word]


def _time(field: str, value: str | int | None, now_ms: int) -> int | None:
    text = "" if value is None else str(value)
    if not text.strip():
        return None
    try:
        return moment_ms(text, now_ms)
    except ValueError as error:
        raise Refused(f"{field} '{text}' is not {error}") from error
