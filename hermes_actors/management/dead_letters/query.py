"""Which dead letters a request means: from its query or its body, or an error naming the field."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.model.dead_letter import DiscardReason, LetterFilter
from hermes_actors.model.moments import moment_ms

IDS_MAX = 1_000
"""The most letters that one request may name."""

_ID = re.compile(r"[a-zA-Z0-9_.-]+:[0-9]{1,19}:[0-9]{1,10}:[0-9]{1,19}")
_FIELDS = ("ids", "reason", "status", "messageId", "since", "until")
_BODY_FIELDS = (*_FIELDS, "all", "dryRun", "ratePerSecond")


def filter_of_query(query: Mapping[str, str | None], now_ms: int) -> LetterFilter:
    """Return the filter that query parameters ask for; reasons and statuses are lists with commas.

    Raises Refused.
    """
    return _filter(query.get, (), now_ms)


def filter_of_body(body: Mapping[str, Any], action: str, now_ms: int) -> LetterFilter:
    """Return the filter that a body asks for; it must say something, if only `{"all":true}`.

    Raises Refused.
    """
    unknown = sorted(set(body) - set(_BODY_FIELDS))
    if unknown:
        raise Refused(f"{unknown[0]}: there is no such field; use {', '.join(_BODY_FIELDS)}")
    is_all = body.get("all", False)
    if not isinstance(is_all, bool):
        raise Refused("all must be true or false", ErrorCode.FORMAT_ERROR)
    named = [field for field in _FIELDS if body.get(field) is not None]
    if is_all == bool(named):
        raise Refused(
            f"Say which dead letters to {action}: by {', '.join(_FIELDS)}, or all of them with "
            '{"all":true}, not both'
        )
    return _filter(lambda field: _text(field, body.get(field)), _ids(body.get("ids")), now_ms)


def _filter(text: Callable[[str], str | None], ids: tuple[str, ...], now_ms: int) -> LetterFilter:
    return LetterFilter(
        ids=ids,
        reasons=_reasons(text("reason")),
        statuses=tuple(_status(word) for word in _words(text("status"))),
        message_id=text("messageId") or "",
        since_ms=_time("since", text("since"), now_ms),
        until_ms=_time("until", text("until"), now_ms),
    )


def number_of_body(body: Mapping[str, Any], field: str, default: int, most: int) -> int:
    """A whole number from 1 to `most`. Raises Refused."""
    value = body.get(field)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise Refused(f"{field} must be a whole number from 1 to {most}")
    return value


def flag_of_body(body: Mapping[str, Any], field: str) -> bool:
    """Return a flag of the body, off when it is not there. Raises Refused."""
    value = body.get(field, False)
    if not isinstance(value, bool):
        raise Refused(f"{field} must be true or false", ErrorCode.FORMAT_ERROR)
    return value


def check_id(text: str) -> str:
    """The id of a letter. Raises Refused."""
    if not _ID.fullmatch(text):
        raise Refused(
            f"'{text}' is not the id of a dead letter, such as dc1:0:3:1042 "
            "(datacentre, life of the subscription, partition, offset)",
            ErrorCode.FORMAT_ERROR,
        )
    return text


def _ids(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not value or not all(isinstance(e, str) for e in value):
        raise Refused("ids must be a list of ids, at least one", ErrorCode.FORMAT_ERROR)
    if len(value) > IDS_MAX:
        raise Refused(f"ids: at most {IDS_MAX} at a time; use since and until for more")
    return tuple(check_id(each) for each in value)


def _text(field: str, value: object) -> str | None:
    """A list of texts and numbers is as good as one text with commas."""
    if isinstance(value, list):
        value = ",".join(str(each) for each in value)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if value is not None and not isinstance(value, str):
        raise Refused(f"{field} must be a string", ErrorCode.FORMAT_ERROR)
    return value


def _words(text: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


def _reasons(text: str | None) -> tuple[str, ...]:
    words = _words(text)
    there_are = [each.value for each in DiscardReason]
    for word in words:
        if word not in there_are:
            raise Refused(f"reason: there is no '{word}'; use {', '.join(there_are)}")
    return words


def _status(word: str) -> int:
    if not re.fullmatch(r"[0-9]{1,3}", word):
        raise Refused(f"status: '{word}' is not an HTTP status; 0 means that there was no answer")
    return int(word)


def _time(field: str, text: str | None, now_ms: int) -> int | None:
    if text is None or not text.strip():
        return None
    try:
        return moment_ms(text, now_ms)
    except ValueError as error:
        raise Refused(f"{field} '{text}' is not {error}") from error
