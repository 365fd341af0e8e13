"""Decodes request bodies. Errors name the field and the reason.

As in Hermes, unknown fields are ignored, and null means absent.
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
from hermes_actors.model.topic import Ack, Durability, Topic

T = TypeVar("T")
S = TypeVar("S", bound=Struct)

NESTING_MAX = 64
"""The maximum depth of maps and lists in a body."""

PARTS_MAX = 20_000
"""The maximum number of commas, colons and brackets in a body. That many take about 10 ms."""

PROBLEMS_MAX = 20
"""The maximum number of problems in one answer."""

_READ_ONLY = ("createdAt", "modifiedAt")
_FREE_MAP = "endpointAddressResolverMetadata"
_TRACKING_MODES = frozenset(mode.value for mode in TrackingMode)

fields_of = cache(msgspec.structs.fields)
"""The fields of a Struct class, cached."""


def require_none(problems: Iterator[str]) -> None:
    """Raises Refused with the first PROBLEMS_MAX of these problems, if there are any."""
    told = list(islice(problems, PROBLEMS_MAX))
    if told:
        raise Refused("; ".join(told))


def json_value(body: bytes) -> Any:
    """Parse a body as JSON. Raises Refused with FORMAT_ERROR."""
    if sum(map(body.count, (b",", b"[", b"{", b":"))) > PARTS_MAX:
        raise Refused(
            f"The body has more than {PARTS_MAX} commas, colons and brackets; send a smaller one",
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
            f"The body nests deeper than {NESTING_MAX} levels; send a flatter one",
            ErrorCode.FORMAT_ERROR,
        ) from error
    return value


def json_object(body: bytes) -> dict[str, Any]:
    """Parse a body as a JSON object. Raises Refused with FORMAT_ERROR."""
    value = json_value(body)
    if not isinstance(value, dict):
        raise Refused('The body must be a JSON object, {"…": …}', ErrorCode.FORMAT_ERROR)
    return value


def required_text(body: Mapping[str, Any], field: str, kind: str) -> str:
    """The value of a required text field. Raises Refused."""
    value = body.get(field)
    if value is None:
        raise Refused(f"{kind}.{field} must not be null")
    if not isinstance(value, str):
        raise Refused(f"{kind}.{field} must be a string", ErrorCode.FORMAT_ERROR)
    return value


def without_label_list(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The body of a topic without the list of labels that Hermes had before 2.14."""
    if not isinstance(body.get("labels"), list):
        return body
    return {key: value for key, value in body.items() if key != "labels"}


def decode_topic(body: Mapping[str, Any], *, default_fallback: bool = False) -> Topic:
    """Decode a topic from its JSON object, without createdAt and modifiedAt, which the broker sets.
    Raises Refused.

    `default_fallback`: the default of fallbackToRemoteDatacenterEnabled. The durability decides the
    defaults of this field and of ack; `topic_violations` refuses contradictions.
    """
    raw = _known_fields(Topic, without_label_list(body))
    durability = raw.get("durability")
    if durability == Durability.CONSISTENT.value:
        raw.setdefault("ack", Ack.ALL.value)
    if durability == Durability.PERFORMANCE.value:
        default_fallback = False
    raw.setdefault("fallbackToRemoteDatacenterEnabled", default_fallback)
    retention = raw.get("retentionTime")
    if isinstance(retention, dict):
        retention.setdefault("duration", 0)
    return _decode(Topic, raw)


def decode_plain(kind: type[S], body: Mapping[str, Any]) -> S:
    """Decode any other Struct from its JSON object. Errors call it by its class name. Raises
    Refused.
    """
    return _decode(kind, _known_fields(kind, body))


def decode_subscription(body: Mapping[str, Any]) -> Subscription:
    """Decode a subscription from its JSON object. Its delivery type decides which kind of policy it
    has. Raises Refused.
    """
    raw = _known_fields(Subscription, body)
    # This map belongs to the client, so its nulls are kept.
    raw[_FREE_MAP] = body.get(_FREE_MAP) or {}
    is_batch = raw.get("deliveryType") == DeliveryType.BATCH.value
    if raw.get("deliveryType") == DeliveryType.PULL.value:
        raw.setdefault("endpoint", "")
    raw.setdefault("subscriptionPolicy", {})
    _settle_tracking(raw)
    return _decode(Subscription, raw, policy=BatchPolicy if is_batch else SerialPolicy)


def converted(kind: type[T], value: Any, at: str = "") -> T:
    """Convert the value to this type. `at`: its path in the body, for errors. Raises Refused."""
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
    """Decode a field in Base64. Raises Refused."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise Refused(f"{field} must be Base64: {error}") from error


def merge(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with the keys that `patch` names changed. Neither argument is modified.

    Maps are merged key by key at every depth; lists are replaced. A null resets a key: the decoder
    then uses its default.
    """
    merged = dict(base)
    for key, value in patch.items():
        old = merged.get(key)
        if isinstance(value, Mapping):
            # Merged even into nothing, so that the result shares no map with the patch.
            merged[key] = merge(old if isinstance(old, Mapping) else {}, value)
        else:
            merged[key] = value
    return merged


def without_nulls(value: Any) -> Any:
    """The value without keys whose value is null, at every depth."""
    if isinstance(value, Mapping):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [without_nulls(each) for each in value]
    return value


def _settle_tracking(raw: dict[str, Any]) -> None:
    """Make trackingEnabled and trackingMode agree. The mode wins; an unknown mode means off."""
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
                # The field's type is a union, which does not decide between the two policies.
                policy if policy and each.name == "subscription_policy" else each.type,
                raw[each.encode_name],
                f"{kind.__name__}.{each.encode_name}",
            )
            for each in fields
            if each.encode_name in raw
        }
    )


def _nests_deeper_than(levels: int, value: Any) -> bool:
    """True if the value is nested so deep that recursion over it could overflow the stack."""
    level = [value]
    for _ in range(levels):
        inner = [each for each in level if isinstance(each, (dict, list))]
        level = [v for each in inner for v in (each.values() if type(each) is dict else each)]
    return bool(level)
