"""Decodes what a client sent into a value, or raises an error that names every field in the way.

Unknown fields are ignored and a null counts as absent: a field with a default gets it, a number or
a flag without one is 0 or false, and anything else that is required is missed by name.
"""

import base64
import types
import typing
from collections.abc import Iterator, Mapping
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

S = TypeVar("S", bound=Struct)

NESTING_MAX = 64
"""How many levels of maps and lists a body may have."""

PARTS_MAX = 20_000
"""How many values, fields and containers it may have: looking at all of them takes some 10 ms."""

INTEGER_MAX = 2**31 - 1
"""The greatest value of the wire's integer fields, as in Hermes."""

PROBLEMS_MAX = 20
"""How many of a body's problems are told, and looked for: a body may have as many as parts."""

_PARTS = (b",", b"[", b"{", b":")

_READ_ONLY = ("createdAt", "modifiedAt")
_FREE_MAP = "endpointAddressResolverMetadata"
_TRACKING_MODES = frozenset(mode.value for mode in TrackingMode)

fields_of = cache(msgspec.structs.fields)
"""The fields of a kind of value, worked out once: the library takes as long as for a request."""


def require_none(problems: Iterator[str]) -> None:
    """Raises Refused that tells the first of these problems, if there are any."""
    told = list(islice(problems, PROBLEMS_MAX))
    if told:
        more = "; and perhaps more" if len(told) == PROBLEMS_MAX else ""
        raise Refused("; ".join(told) + more)


def json_value(body: bytes) -> Any:
    """The JSON value that a request's body holds. Raises Refused with FORMAT_ERROR."""
    if sum(map(body.count, _PARTS)) > PARTS_MAX:
        raise Refused(
            f"The body has more than {PARTS_MAX} values, fields, arrays and objects (commas, "
            "colons and brackets, also within texts); nothing here needs that",
            ErrorCode.FORMAT_ERROR,
        )
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(f"The body is not valid JSON: {error}", ErrorCode.FORMAT_ERROR) from error
    except RecursionError as error:
        raise _too_deep() from error
    if not _is_shallow(value):
        raise _too_deep()
    return value


def _is_shallow(value: Any) -> bool:
    """True when nothing nests so deep that a walk over it could run out of stack."""
    level = [value]
    for _ in range(NESTING_MAX):
        level = [
            child
            for each in level
            if isinstance(each, (dict, list))
            for child in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return True
    return False


def _too_deep() -> Refused:
    return Refused(
        f"The body nests deeper than {NESTING_MAX} levels; nothing here needs that",
        ErrorCode.FORMAT_ERROR,
    )


def json_object(body: bytes) -> dict[str, Any]:
    """The JSON object that a request's body holds. Raises Refused with FORMAT_ERROR."""
    value = json_value(body)
    if not isinstance(value, dict):
        raise Refused(f"The body must be a JSON object, not {_kind(value)}", ErrorCode.FORMAT_ERROR)
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
    raw = _cleaned(Topic, body)
    raw.setdefault("fallbackToRemoteDatacenterEnabled", default_fallback)
    retention = raw.get("retentionTime")
    if isinstance(retention, dict):
        retention.setdefault("duration", 0)
    return _decode(Topic, raw, {})


def decode_plain(kind: type[S], body: Mapping[str, Any]) -> S:
    """Any other value from its JSON object, called by its kind's name. Raises Refused."""
    return _decode(kind, _cleaned(kind, body), {})


def decode_subscription(body: Mapping[str, Any]) -> Subscription:
    """A subscription from its JSON object; the delivery type says which policy. Raises Refused."""
    raw = _cleaned(Subscription, body)
    raw[_FREE_MAP] = body.get(_FREE_MAP) or {}
    batch = raw.get("deliveryType") == DeliveryType.BATCH.value
    policy: type[Struct] = BatchPolicy if batch else SerialPolicy
    raw.setdefault("subscriptionPolicy", {})
    _settle_tracking(raw)
    return _decode(Subscription, raw, {"subscription_policy": policy})


def decode_base64(text: str, field: str) -> bytes:
    """The bytes of a field in Base64. Raises Refused."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise Refused(f"{field} must be Base64: {error}") from error


def _settle_tracking(raw: dict[str, Any]) -> None:
    """The flag and the mode say the same thing; the mode wins, and an unknown one is off."""
    mode = raw.get("trackingMode")
    if mode is None:
        mode = (TrackingMode.ALL if raw.get("trackingEnabled") is True else TrackingMode.OFF).value
    elif isinstance(mode, str) and mode not in _TRACKING_MODES:
        mode = TrackingMode.OFF.value
    raw["trackingMode"] = mode
    raw["trackingEnabled"] = mode != TrackingMode.OFF.value


def _cleaned(kind: type[Struct], body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that the model knows, without nulls; not the free map, which is the client's."""
    known = {each.encode_name for each in fields_of(kind)} - {_FREE_MAP}
    return {
        key: _whole_numbers(without_nulls(value), f"{kind.__name__}.{key}")
        for key, value in body.items()
        if value is not None and key not in _READ_ONLY and key in known
    }


def _whole_numbers(value: Any, path: str) -> Any:
    """JSON has one kind of number: 100.0 is as good an integer as 100. Raises Refused."""
    if isinstance(value, dict):
        return {key: _whole_numbers(each, f"{path}.{key}") for key, each in value.items()}
    if isinstance(value, list):
        return [_whole_numbers(each, f"{path}[{at}]") for at, each in enumerate(value)]
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and abs(value) > INTEGER_MAX:
        raise Refused(
            f"{path}: {value} is out of range; the most is {INTEGER_MAX}", ErrorCode.FORMAT_ERROR
        )
    return value


def _decode(kind: type[S], raw: dict[str, Any], override: Mapping[str, type[Struct]]) -> S:
    require_none(f"{path} must not be null" for path in _missing(kind, raw, kind.__name__))
    values: dict[str, Any] = {}
    for each in fields_of(kind):
        if each.encode_name not in raw:
            continue
        wanted = override.get(each.name, each.type)
        decode = partial(msgspec.convert, type=wanted, strict=False)
        try:
            values[each.name] = decode(raw[each.encode_name])
        except msgspec.ValidationError as error:
            path, problem = explained(raw[each.encode_name], decode, error)
            if words := words_at(wanted, path):
                problem += f"; it is one of {', '.join(words)}"
            raise Refused(
                f"{kind.__name__}.{each.encode_name}{path}: {problem}", ErrorCode.FORMAT_ERROR
            ) from error
    return kind(**values)


def _missing(kind: type[Struct], raw: Mapping[str, Any], path: str) -> Iterator[str]:
    """The paths of required fields that are not there, nested ones too, in the model's order."""
    for each in fields_of(kind):
        here = f"{path}.{each.encode_name}"
        if each.encode_name not in raw:
            if each.required:
                yield here
            continue
        yield from _missing_within(each.type, raw[each.encode_name], here)


def _missing_within(kind: Any, value: Any, path: str) -> Iterator[str]:
    origin, arguments = _shape(kind)
    if isinstance(kind, type) and issubclass(kind, Struct):
        if isinstance(value, dict):
            yield from _missing(kind, value, path)
    elif origin is list and isinstance(value, list):
        for index, each in enumerate(value):
            yield from _missing_within(arguments[0], each, f"{path}[{index}]")
    elif origin is dict and isinstance(value, dict):
        for key, each in value.items():
            yield from _missing_within(arguments[1], each, f"{path}[{key}]")
    elif origin in (types.UnionType, typing.Union) and arguments[1:] == (type(None),):
        # Only `X | None`; the two policies have defaults throughout and nothing to miss.
        yield from _missing_within(arguments[0], value, path)


@cache
def _shape(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    return typing.get_origin(kind), typing.get_args(kind)


def _kind(value: Any) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


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
