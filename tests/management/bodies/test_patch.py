"""Property tests of the merge."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.management.bodies.decoding import merge, without_nulls

KEYS = st.sampled_from(["a", "b", "c", "d"])
SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=10,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=4)


def paths(value: Any, at: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Every leaf by its path; an empty map, a list and a null are leaves."""
    if not isinstance(value, dict) or not value:
        return {at: value}
    return {
        path: leaf for key, each in value.items() for path, leaf in paths(each, (*at, key)).items()
    }


@given(OBJECTS, OBJECTS)
def test_a_patch_applied_twice_is_a_patch_applied_once(base, patch):
    once = merge(base, patch)
    assert merge(once, patch) == once


@given(OBJECTS, OBJECTS)
def test_keys_that_the_patch_does_not_name_stay(base, patch):
    merged = merge(base, patch)
    assert {key: merged[key] for key in base if key not in patch} == {
        key: base[key] for key in base if key not in patch
    }
    assert set(merged) == set(base) | set(patch)


@given(OBJECTS, OBJECTS)
def test_every_leaf_of_the_patch_is_in_the_result(base, patch):
    merged = paths(merge(base, patch))
    for path, leaf in paths(patch).items():
        if leaf != {}:
            assert merged[path] == leaf


@given(OBJECTS, OBJECTS)
def test_neither_argument_is_changed(base, patch):
    before = repr(base), repr(patch)
    merge(base, patch)
    assert (repr(base), repr(patch)) == before


def test_lists_are_replaced_whole_and_nested_maps_keep_their_siblings():
    base = {"list": [1, 2], "map": {"a": 1, "b": {"c": 2, "d": 3}}}
    patch = {"list": [3], "map": {"b": {"c": None}}}
    assert merge(base, patch) == {"list": [3], "map": {"a": 1, "b": {"c": None, "d": 3}}}


@given(VALUES)
def test_without_nulls_leaves_no_key_with_a_null(value):
    def nulls(each: Any) -> bool:
        if isinstance(each, dict):
            return any(v is None or nulls(v) for v in each.values())
        return isinstance(each, list) and any(nulls(v) for v in each)

    assert not nulls(without_nulls(value))
