"""What a client sent becomes a value, or an error that names every field in the way.

Unknown fields are ignored and a null counts as absent: a field with a default gets it, a number or
a flag without one is 0 or false, and anything else that is required is missed by name.
"""

import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.management.patch import without_nulls
from hermes_actors.model.subscription import (
    BatchPolicy,
    DeliveryType,
    SerialPolicy,
    Subscription,
    TrackingMode,
)
from hermes_actors.model.topic import Topic

S = TypeVar("S", bound=Struct)

_READ_ONLY = ("createdAt", "modifiedAt")
_TRACKING_MODES = frozenset(mode.value for mode in TrackingMode)


def json_object(body: bytes) -> dict[str, Any]:
    """The JSON object that a request's body holds. Raises Refused with FORMAT_ERROR."""
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise Refused(f"The body is not valid JSON: {error}", ErrorCode.FORMAT_ERROR) from error
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


def decode_topic(body: Mapping[str, Any]) -> Topic:
    """A topic from its JSON object; its two times are the broker's to set. Raises Refused."""
    raw = _cleaned(body)
    retention = raw.get("retentionTime")
    if isinstance(retention, dict):
        retention.setdefault("duration", 0)
    return _decode(Topic, raw, {})


def decode_subscription(body: Mapping[str, Any]) -> Subscription:
    """A subscription from its JSON object; the delivery type says which policy. Raises Refused."""
    raw = _cleaned(body)
    raw["endpointAddressResolverMetadata"] = body.get("endpointAddressResolverMetadata") or {}
    batch = raw.get("deliveryType") == DeliveryType.BATCH.value
    policy: type[Struct] = BatchPolicy if batch else SerialPolicy
    raw.setdefault("subscriptionPolicy", {})
    _settle_tracking(raw)
    return _decode(Subscription, raw, {"subscription_policy": policy})


def _settle_tracking(raw: dict[str, Any]) -> None:
    """The flag and the mode say the same thing; the mode wins, and an unknown one is off."""
    mode = raw.get("trackingMode")
    if mode is None:
        mode = (TrackingMode.ALL if raw.get("trackingEnabled") is True else TrackingMode.OFF).value
    elif mode not in _TRACKING_MODES:
        mode = TrackingMode.OFF.value
    raw["trackingMode"] = mode
    raw["trackingEnabled"] = mode != TrackingMode.OFF.value


def _cleaned(body: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _whole_numbers(without_nulls(value))
        for key, value in body.items()
        if value is not None and key not in _READ_ONLY
    }


def _whole_numbers(value: Any) -> Any:
    """JSON has one kind of number: 100.0 is as good an integer as 100."""
    if isinstance(value, dict):
        return {key: _whole_numbers(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_whole_numbers(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _decode(kind: type[S], raw: dict[str, Any], override: Mapping[str, type[Struct]]) -> S:
    missing = list(_missing(kind, raw, kind.__name__))
    if missing:
        raise Refused("; ".join(f"{path} must not be null" for path in missing))
    values: dict[str, Any] = {}
    for each in msgspec.structs.fields(kind):
        if each.encode_name not in raw:
            continue
        try:
            values[each.name] = msgspec.convert(
                raw[each.encode_name], override.get(each.name, each.type), strict=False
            )
        except msgspec.ValidationError as error:
            raise Refused(
                _explain(kind, each.encode_name, error), ErrorCode.FORMAT_ERROR
            ) from error
    return kind(**values)


def _explain(kind: type[Struct], field: str, error: msgspec.ValidationError) -> str:
    problem, _, path = str(error).partition(" - at `$")
    return f"{kind.__name__}.{field}{path.rstrip('`')}: {problem}"


def _missing(kind: type[Struct], raw: Mapping[str, Any], path: str) -> Iterator[str]:
    """The paths of required fields that are not there, nested ones too, in the model's order."""
    for each in msgspec.structs.fields(kind):
        here = f"{path}.{each.encode_name}"
        if each.encode_name not in raw:
            if each.required:
                yield here
            continue
        yield from _missing_within(each.type, raw[each.encode_name], here)


def _missing_within(kind: Any, value: Any, path: str) -> Iterator[str]:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
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


def _kind(value: Any) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
