"""The weight of a schema: a bound for the work that any value can be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.schema.validation import UNITS_MAX
from hermes_actors.schema.weight import weigh

N = {"$ref": "#/$defs/n"}


def chained(length: int, times: int) -> dict:
    """Each definition applies the next one so many times to the same value."""
    definitions: dict = {
        f"d{at}": {"allOf": [{"$ref": f"#/$defs/d{at + 1}"}] * times} for at in range(length)
    }
    definitions[f"d{length}"] = {"type": "string"}
    return {"$defs": definitions, "$ref": "#/$defs/d0"}


def recursive(*places: dict) -> dict:
    return {"$defs": {"n": {"anyOf": list(places)}}, "$ref": "#/$defs/n"}


def test_the_parts_are_counted_that_may_apply_to_one_place():
    weight = weigh({"properties": {"a": {"type": "string"}, "b": {"pattern": "x"}}})
    assert weight is not None
    assert (weight.parts, weight.members, weight.patterns) == (1, 2, 1)


@pytest.mark.parametrize(
    ("schema", "parts"),
    [
        ({"enum": [f"o{at}" for at in range(1_000)]}, 1),
        ({"enum": list(range(1_000))}, 11),
        ({"enum": ["a", None]}, 21),
        ({"const": [1, [2, 3]]}, 51),
        ({"multipleOf": 0.01}, 9),
        ({"multipleOf": 5}, 1),
    ],
)
def test_what_is_compared_slowly_weighs_more(schema, parts):
    weight = weigh(schema)
    assert weight is not None
    assert weight.parts == parts


def test_patterns_that_count_repetitions_weigh_by_their_counts():
    plain, counted, nested = (
        weigh({"pattern": each}) for each in ("a+b", "a{80}b{2,80}", "((a{9}){9}){9}")
    )
    assert plain is not None
    assert counted is not None
    assert nested is not None
    assert (plain.patterns, counted.patterns, nested.patterns) == (1, 21, 92)


def test_what_must_come_together_weighs_by_its_names():
    weight = weigh({"dependentRequired": {"a": ["b", "c"], "d": ["e"]}})
    assert weight is not None
    assert weight.members == 5


def test_large_integers_are_costly_where_items_must_differ():
    weight = weigh({"uniqueItems": True})
    assert weight is not None
    assert weight.units(b"[1,2]") < 100
    assert weight.units(b"[12345678901234567890,2]") > 1_000_000


def test_numbers_with_an_exponent_are_costly_where_fractions_are_calculated():
    weight = weigh({"items": {"multipleOf": 0.1}})
    assert weight is not None
    assert weight.units(b"[1.5,2]") < weight.units(b"[1e9,2]")
    assert weigh({"multipleOf": 1e-300}) is None


@pytest.mark.parametrize(
    "schema",
    [
        chained(24, 2),
        recursive({"properties": {"a": N}}, {"properties": {"a": N}, "required": ["z"]}),
        recursive({"properties": {"a": N}}, {"additionalProperties": N}),
        recursive({"items": N}, {"prefixItems": [N]}),
        {"$ref": "#"},
        chained(65, 1),
        {"$dynamicRef": "#a"},
        {"properties": {f"p{at}": {"type": "string"} for at in range(2_000)}},
        {"properties": {f"p{at}": {"pattern": "x"} for at in range(200)}},
        {"uniqueItems": True, "items": {"$ref": "#"}},
        {"$ref": "#/nowhere"},
        {"then": {"$ref": "#/allOf/" + "1" * 5_000}, "allOf": [True]},
        {"anyOf": [{"items": True}], "unevaluatedItems": False},
        {"additionalProperties": True, "unevaluatedProperties": False},
        {"allOf": [{"$id": "http://a.test/b", "$ref": "#/allOf/0"}]},
        {"$defs": {"r": {"id": "other", "allOf": []}}, "$ref": "#/$defs/r"},
        {"$ref": "#/$defs/a%2Fb", "$defs": {"a/b": True}},
        {"properties": {"x" * 30_000: {"properties": {str(at): True for at in range(900)}}}},
        {"maximum": 10**300},
        {"multipleOf": 10**30},
        {"allOf": [5]},
    ],
)
def test_what_may_grow_without_bound_or_is_not_understood_weighs_too_much(schema):
    assert weigh(schema) is None


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"items": {"$ref": "#"}},
        recursive({"properties": {"left": N}}, {"properties": {"right": N}}),
        {"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"type": "string"}}},
        chained(3, 2),
        {"properties": {"a/b~c%": {"$ref": "#/$defs/a~1b~0c"}}, "$defs": {"a/b~c": {}}},
    ],
)
def test_what_is_bounded_has_a_weight(schema):
    assert weigh(schema) is not None


NAMES = st.sampled_from(["a", "b"])
LEAVES = st.sampled_from(
    [True, {"type": "string"}, {"minimum": 2}, {"$ref": "#"}, {"$ref": "#/$defs/x"}]
)


def containers(inner: st.SearchStrategy) -> st.SearchStrategy:
    several = st.lists(inner, min_size=1, max_size=3)
    parts = {
        "properties": st.dictionaries(NAMES, inner, max_size=2),
        "items": inner,
        "additionalProperties": inner,
        "anyOf": several,
        "allOf": several,
        "not": inner,
    }
    return st.fixed_dictionaries({}, optional=parts)


SCHEMAS = st.recursive(LEAVES, containers, max_leaves=8)
VALUES = st.recursive(
    st.sampled_from([1, "x", None]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=10,
)


class Walk:
    """Applies a schema to a value by the standard's words, and counts what meets each place."""

    def __init__(self, root: dict) -> None:
        self.root = root
        self.met: dict[tuple, int] = {}

    def apply(self, schema: object, value: object, place: tuple = ()) -> None:
        self.met[place] = self.met.get(place, 0) + 1
        if not isinstance(schema, dict):
            return
        for each in [*schema.get("anyOf", []), *schema.get("allOf", [])]:
            self.apply(each, value, place)
        if "not" in schema:
            self.apply(schema["not"], value, place)
        if "$ref" in schema:
            root = self.root
            self.apply(root if schema["$ref"] == "#" else root["$defs"]["x"], value, place)
        if isinstance(value, list) and "items" in schema:
            for at, each in enumerate(value):
                self.apply(schema["items"], each, (*place, at))
        if isinstance(value, dict):
            own = schema.get("properties", {})
            for name, each in value.items():
                if name in own:
                    self.apply(own[name], each, (*place, name))
                elif "additionalProperties" in schema:
                    self.apply(schema["additionalProperties"], each, (*place, name))


@given(SCHEMAS, SCHEMAS, VALUES)
def test_no_place_of_a_value_meets_more_parts_than_the_weight_says(schema, inner, value):
    root = {"$defs": {"x": inner}, **(schema if isinstance(schema, dict) else {"allOf": [schema]})}
    weight = weigh(root)
    if weight is not None:
        walk = Walk(root)
        walk.apply(root, value)
        assert max(walk.met.values()) <= weight.parts


def test_numbers_with_large_exponents_weigh_what_decoding_them_takes():
    weight = weigh({"type": "array"})
    assert weight is not None
    few, many = (b"[" + b",".join([b"1e300"] * count) + b"]" for count in (60, 9_000))
    plain = b"[" + b",".join([b"12300"] * 9_000) + b"]"
    assert weight.units(few) < UNITS_MAX
    assert weight.units(plain) < UNITS_MAX
    assert weight.units(many) > UNITS_MAX
