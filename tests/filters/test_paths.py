"""What a path finds, which paths are refused, and what bounds the work of one."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonpath_rfc9535 import JSONPathEnvironment

from hermes_actors.filters.failures import FilterFailed, FilterInvalid
from hermes_actors.filters.paths import CompiledPath

names = st.sampled_from(["a", "b", "ż", "x-y", "0", "it's", "*"])
documents = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | names,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=20,
)
steps = st.one_of(
    names.map(lambda name: "['" + name.replace("'", "\\'") + "']"),
    st.integers(-5, 5).map(lambda index: f"[{index}]"),
    st.sampled_from(["[*]", ".*", ".a", ".b", ".ż"]),
)


def found(path, document):
    body = msgspec.json.encode(document)
    return list(CompiledPath(path).values(msgspec.json.decode(body)))


@given(documents, st.lists(steps, max_size=5))
def test_the_walk_finds_what_the_library_finds_in_the_same_order(document, pieces):
    text = "$" + "".join(pieces)
    path = CompiledPath(text)
    assert list(path.values(document)) == JSONPathEnvironment().find(text, document).values()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$", [{"event-type": "A", "b": [{"c": 1}, {"c": None}, {}], "n": {"d e": 2}}]),
        ("$.b[*].c", [1, None]),
        ("$.b[-3].c", [1]),
        ("$.b[3]", []),
        ("$.b.c", []),
        ("$..c", [1, None]),
        ("$.b[?(@.c == 1)].c", [1]),
        ("$['n']['d e']", [2]),
        # As Hermes takes them, beyond the standard.
        ("$.event-type", ["A"]),
        ("event-type", ["A"]),
        ("b[0].c", [1]),
        ("['n']['d e']", [2]),
        ("$..event-type", ["A"]),
    ],
)
def test_what_a_path_finds(path, expected):
    document = {"event-type": "A", "b": [{"c": 1}, {"c": None}, {}], "n": {"d e": 2}}
    assert found(path, document) == expected


@pytest.mark.parametrize(
    "path",
    [
        "$.",
        "$.a[",
        "@.a",
        "$.a.length()",
        "$.a[?(@.b =~ /x/)]",
        "$.a[?(@.b in ['x'])]",
        "$.a b",
        "$" + "[?@" * 300 + ".a" + "]" * 300,
        "$.a" + ".a" * 500,
        "$[?@.a == 1e400]",
    ],
)
def test_a_path_that_does_not_compile_is_refused(path):
    with pytest.raises(FilterInvalid) as refused:
        CompiledPath(path)
    assert refused.value.field == "path"


def test_a_message_that_is_nested_too_deep_fails_a_search():
    document = 1
    for _ in range(150):
        document = [document]
    with pytest.raises(FilterFailed, match="cannot be followed"):
        found("$..a", document)


def test_functions_of_the_standard_are_there_and_their_patterns_are_bounded():
    assert found("$[?match(@.a, 'x.*')].a", [{"a": "xy"}, {"a": "yx"}, {"a": 1}]) == ["xy"]
    assert found("$[?search(@.a, 'x')].a", [{"a": "yx"}, {"a": "y"}]) == ["yx"]
    assert found("$[?length(@.a) > 1].a", [{"a": "yx"}, {"a": "y"}]) == ["yx"]


@pytest.mark.parametrize(
    ("path", "is_soon"),
    [
        ("$.a.b[*].c", True),
        ("$..a", True),
        ("$.a[?@.b == 1]", True),
        ("$..a..b", False),
        ("$.a[?@..b]", False),
        ("$.a[?@[?@.b]]", False),
        ("$.a[?$.b[*]]", False),
        ("$.a[?match(@.a, '(a|aa)+b')]", False),
    ],
)
def test_a_path_that_may_multiply_its_work_is_for_a_worker(path, is_soon):
    assert CompiledPath(path).is_for_loop(200) == is_soon
    assert not CompiledPath("$..a").is_for_loop(50_000)
