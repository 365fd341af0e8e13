"""A patch changes the keys that it names and no other.

Maps are merged key by key at every depth, lists are replaced whole, and an explicit null takes a
key's value away, so that the decoder gives it its default again.
"""

from collections.abc import Mapping
from typing import Any


def merge(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `patch` laid over it; neither is changed."""
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
