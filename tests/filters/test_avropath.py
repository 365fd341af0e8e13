"""What Hermes' paths find in a decoded Avro message, what is compared, and what they cost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.filters.avropath import AvroPath, avro_text
from hermes_actors.filters.compiled import Candidate, Filters
from hermes_actors.filters.failures import FilterFailed, FilterInvalid
from hermes_actors.model.subscription import Filter

DOCUMENT = {
    "id": "0001",
    "nothing": None,
    "favorites": [{"food": "Sushi", "tags": ["a", "b"]}, {"food": None}, "odd"],
    "numbers": [1, 2, 3],
    "flat": {"key": {"inner": 1.5}},
}
BODY = b'{"a":{"xs":[{"n":"1"},{"n":"22"}],"no":null},"list":[1,"x",{"b":[true,null]}]}'

names = st.sampled_from(["a", "b", "ż"])
documents = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | names,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=20,
)
steps = st.tuples(names, st.none() | st.just("*") | st.integers(0, 3))


def as_hermes(document, path):
    """The same by Hermes' own words: one value after the other, from the front."""
    if not path:
        return [document]
    if not isinstance(document, dict):
        return []
    (name, index), rest = path[0], path[1:]
    value = document.get(name)
    if index is None:
        return as_hermes(value, rest)
    if not isinstance(value, list):
        return []
    if index == "*":
        return [found for item in value for found in as_hermes(item, rest)]
    return as_hermes(value[index] if index < len(value) else None, rest)


@given(documents, st.lists(steps, min_size=1, max_size=4))
def test_the_walk_finds_what_hermes_finds_in_the_same_order(document, path):
    text = ".".join(name if index is None else f"{name}[{index}]" for name, index in path)
    assert AvroPath(text).values(document) == as_hermes(document, path)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("id", ["0001"]),
        (".id.", ["0001"]),
        ("absent", [None]),
        ("nothing", [None]),
        ("nothing.more", []),
        ("absent.more", []),
        ("id.more", []),
        ("favorites[0].food", ["Sushi"]),
        ("favorites[*].food", ["Sushi", None]),
        ("favorites[*].tags[*]", ["a", "b"]),
        ("favorites[9]", [None]),
        ("favorites[9].food", []),
        ("id[*]", []),
        ("id[0]", []),
        ("numbers", [[1, 2, 3]]),
        ("numbers[*]", [1, 2, 3]),
        ("flat.key.inner", [1.5]),
        ("flat.other", [None]),
    ],
)
def test_paths_find(path, expected):
    assert AvroPath(path).values(DOCUMENT) == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("ż", "ż"),
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
        ([1, "x", {"b": [True, None]}, ["y"]], '[1, x, {"b": [true, null]}, [y]]'),
        ({"a": 1, "b": "x"}, '{"a": 1, "b": "x"}'),
    ],
)
def test_values_are_compared_as_java_prints_them(value, text):
    assert avro_text(value) == text


@pytest.mark.parametrize(
    ("path", "matcher", "strategy", "is_passed"),
    [
        ("a.xs[*].n", "[0-9]+", "all", True),
        ("a.xs[*].n", "[0-9]", "all", False),
        ("a.xs[*].n", "[0-9]", "any", True),
        ("a.no", "null", "all", True),
        ("a.absent", "null", "all", True),
        ("a.xs[7]", "null", "all", True),
        ("absent.inner", ".*", "all", False),
        ("a.xs[*].n.deeper", ".*", "all", False),
        ("list", r"\[1, x, .*\]", "all", True),
    ],
)
def test_a_filter_asks_all_leaves_or_any(path, matcher, strategy, is_passed):
    wanted = Filter(type="avropath", path=path, matcher=matcher, matching_strategy=strategy)
    left_out_by = Filters([wanted]).rejects(Candidate(BODY))
    assert left_out_by == ("" if is_passed else "avropath")


@pytest.mark.parametrize("path", ["", ".", "a..b", "a[*][*]", "a[1][2].b", "x" * 1_001])
def test_a_path_that_could_find_nothing_is_refused(path):
    with pytest.raises(FilterInvalid, match=r"^path must"):
        AvroPath(path)


def test_a_wide_message_is_given_up_when_its_time_is_over():
    wide = {"a": [{"b": [{"c": 1}] * 1_000}] * 100}
    path = AvroPath("a[*].b[*].c.d")
    assert path.values(wide) == []


def test_what_nests_too_deep_to_be_printed_fails_the_filter():
    deep = "x"
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(FilterFailed, match="too deep"):
        avro_text(deep)
    while isinstance(deep, list):
        deep = deep.pop()
