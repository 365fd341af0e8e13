"""Decodes what a client sent, or raises an error that names the field and the reason.

Unknown fields are ignored and a null counts as absent, as in Hermes.
"""

import base64
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from itertools import islice
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.model.places import explained, words_at
from hermes_actors.model.subscription import (
    BatchPolicy,
    DeliveryType,
    SerialPolicy,
    Subscription,
    TrackingMode,
)
from hermes_actors.model.topic import Topic

T = TypeVar("T")
S = TypeVar("S", bound=Struct)

NESTING_MAX = 64
"""How many levels of maps and lists a body may have."""

PARTS_MAX = 20_000
"""How many values, fields and containers it may have: looking at all of them takes some 10 ms."""

PROBLEMS_MAX = 20
"""How many of a body's problems are told."""

_READ_ONLY = ("createdAt", "modifiedAt")
_FREE_MAP = "endpointAddressResolverMetadata"
_TRACKING_MODES = frozenset(mode.value for mode in TrackingMode)

fields_of = cache(msgspec.structs.fields)
"""The fields of a kind of value, worked out once."""


def require_none(problems: Iterator[str]) -> None:
    """Raises Refused that tells the first of these problems, if there are any."""
    told = list(islice(problems, PROBLEMS_MAX))
    if told:
        raise Refused("; ".join(told))


def json_value(body: bytes) -> Any:
    """The JSON value that a request's body holds. Raises Refused with FORMAT_ERROR."""
    if sum(map(body.count, (b",", b"[", b"{", b":"))) > PARTS_MAX:
        raise Refused(
            f"The body has more than {PARTS_MAX} commas, colons and brackets; nothing here needs "
            "that",
            ErrorCode.FORMAT_ERROR,
        )
    try:
        value = msgspec.json.decode(body)
        if _nests_deeper_than(NESTING_MAX, value):
            raise RecursionError
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(f"The body is not valid JSON: {error}", ErrorCode.FORMAT_ERROR) from error
    except RecursionError as error:
        raise Refused(
            f"The body nests deeper than {NESTING_MAX} levels; nothing here needs that",
            ErrorCode.FORMAT_ERROR,
        ) from error
    return value


def json_object(body: bytes) -> dict[str, Any]:
    """The JSON object that a request's body holds. Raises Refused with FORMAT_ERROR."""
    value = json_value(body)
    if not isinstance(value, dict):
        raise Refused('The body must be a JSON object, {"…": …}', ErrorCode.FORMAT_ERROR)
    return value


def required_text(body: Mapping[str, Any], field: str, kind: str) -> str:
    """A field that must be there and be text. Raises Refused."""
    value = body.get(field)
    if value is None:
        raise Refused(f"{kind}.{field} must not be null")
    if not isinstance(value, str):
        raise Refused(f"{kind}.{field} must be a string", ErrorCode.FORMAT_ERROR)
    return value


def decode_topic(body: Mapping[str, Any], *, default_fallback: bool = False) -> Topic:
    """A topic from its JSON object; its two times are the broker's to set. Raises Refused.

    `default_fallback` is whether a topic that does not say falls back to other datacentres.
    """
    raw = _known_fields(Topic, body)
    raw.setdefault("fallbackToRemoteDatacenterEnabled", default_fallback)
    retention = raw.get("retentionTime")
    if isinstance(retention, dict):
        retention.setdefault("duration", 0)
    return _decode(Topic, raw)


def decode_plain(kind: type[S], body: Mapping[str, Any]) -> S:
    """Any other value from its JSON object, called by its kind's name. Raises Refused."""
    return _decode(kind, _known_fields(kind, body))


def decode_subscription(body: Mapping[str, Any]) -> Subscription:
    """A subscription from its JSON object; the delivery type says which policy. Raises Refused."""
    raw = _known_fields(Subscription, body)
    # The free map is the client's own: its nulls too.
    raw[_FREE_MAP] = body.get(_FREE_MAP) or {}
    is_batch = raw.get("deliveryType") == DeliveryType.BATCH.value
    raw.setdefault("subscriptionPolicy", {})
    _settle_tracking(raw)
    return _decode(Subscription, raw, policy=BatchPolicy if is_batch else SerialPolicy)


def converted(kind: type[T], value: Any, at: str = "") -> T:
    """The value as this kind; `at` says where it stands in the body. Raises Refused."""
    decode: Callable[[Any], T] = partial(msgspec.convert, type=kind, strict=False)
    try:
        return decode(value)
    except msgspec.ValidationError as error:
        path, problem = explained(value, decode, error)
        if words := words_at(kind, path):
            problem += f"; it is one of {', '.join(words)}"
        place = f"{at}{path}".lstrip(".") or "The body"
        raise Refused(f"{place}: {problem}", ErrorCode.FORMAT_ERROR) from error


def decode_base64(text: str, field: str) -> bytes:
    """The bytes of a field in Base64. Raises Refused."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise Refused(f"{field} must be Base64: {error}") from error


def merge(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with `patch` laid over it, which changes the keys that it names and no other.

    Maps are merged key by key at every depth, lists are replaced whole, and an explicit null takes
    a key's value away, so that the decoder gives it its default again. Neither is changed.
    """
    merged = dict(base)
    for key, value in patch.items():
        old = merged.get(key)
        if isinstance(value, Mapping):
            # Also where nothing is there to merge with, so that no map is shared with the patch.
            merged[key] = merge(old if isinstance(old, Mapping) else {}, value)
        else:
            merged[key] = value
    return merged


def without_nulls(value: Any) -> Any:
    """The value with every key whose value is null left out, at every depth."""
    if isinstance(value, Mapping):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [without_nulls(each) for each in value]
    return value


def _settle_tracking(raw: dict[str, Any]) -> None:
    """The flag and the mode say the same thing; the mode wins, and an unknown one is off."""
    mode = raw.get("trackingMode")
    if mode is None:
        mode = (TrackingMode.ALL if raw.get("trackingEnabled") is True else TrackingMode.OFF).value
    elif isinstance(mode, str) and mode not in _TRACKING_MODES:
        mode = TrackingMode.OFF.value
    raw["trackingMode"] = mode
    raw["trackingEnabled"] = mode != TrackingMode.OFF.value


def _known_fields(kind: type[Struct], body: Mapping[str, Any]) -> dict[str, Any]:
    known = {each.encode_name for each in fields_of(kind)}.difference(_READ_ONLY)
    return {key: without_nulls(body[key]) for key in body if body[key] is not None and key in known}


def _decode(kind: type[S], raw: dict[str, Any], policy: type[Struct] | None = None) -> S:
    fields = fields_of(kind)
    missing = (each for each in fields if each.required and each.encode_name not in raw)
    require_none(f"{kind.__name__}.{each.encode_name} must not be null" for each in missing)
    return kind(
        **{
            each.name: converted(
                # A union of the two policies cannot tell them apart.
                policy if policy and each.name == "subscription_policy" else each.type,
                raw[each.encode_name],
                f"{kind.__name__}.{each.encode_name}",
            )
            for each in fields
            if each.encode_name in raw
        }
    )


def _nests_deeper_than(levels: int, value: Any) -> bool:
    """True where something nests so deep that a walk over it could run out of stack."""
    level = [value]
    for _ in range(levels):
        inner = [each for each in level if isinstance(each, (dict, list))]
        level = [v for each in inner for v in (each.values() if type(each) is dict else each)]
    return bool(level)
