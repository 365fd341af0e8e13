"""What a path finds, which paths are refused, and what bounds the work of one."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.filters.budget import LOOK_EVERY, Budget, BudgetSpent
from hermes_actors.filters.failures import FilterFailed, FilterInvalid
from hermes_actors.filters.paths import CompiledPath
from hermes_actors.runtime.threads import SystemThreads
from tests.filters.budgets import Ticking, ample

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
    return list(CompiledPath(path).values(msgspec.json.decode(body), ample()))


@given(documents, st.lists(steps, max_size=5))
def test_the_walk_finds_what_the_library_finds_in_the_same_order(document, pieces):
    path = CompiledPath("$" + "".join(pieces))
    assert path.is_walked
    assert list(path.values(document, ample())) == path.searched(document)


@given(documents, st.sampled_from(["$..a", "$..[0]", "$.a[?@.b]", "$[0:2]", "$['a','b']"]))
def test_other_paths_are_the_librarys(document, text):
    path = CompiledPath(text)
    assert not path.is_walked
    assert list(path.values(document, ample())) == path.searched(document)


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
        "$..a..b",
        "$[?@..a]",
        "$[?@[?@.a]]",
        "$" + "[?@" * 300 + ".a" + "]" * 300,
        "$.a" + ".a" * 500,
    ],
)
def test_a_path_that_does_not_compile_or_cannot_be_bounded_is_refused(path):
    with pytest.raises(FilterInvalid) as refused:
        CompiledPath(path)
    assert refused.value.field == "path"


def test_a_search_over_many_parts_looks_at_the_clock_again_and_again():
    document = {"a": [{"b": n} for n in range(1_000)]}
    clock = Ticking()
    assert len(CompiledPath("$..b").values(document, Budget(1_000.0, clock))) == 1_000
    assert clock.looks >= 1_000 / LOOK_EVERY


@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("$" + "[*,*]" * 16, [[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]),
        ("$..b", {"a": [{"b": n} for n in range(20_000)]}),
        ("$.a[?$.a == $.a]", {"a": list(range(2_000))}),
    ],
)
def test_a_path_that_multiplies_what_it_finds_spends_the_budget(path, document):
    clock = Ticking()
    with pytest.raises(BudgetSpent, match="took more than 20 ms"):
        list(CompiledPath(path).values(document, Budget(0.02, clock)))
    assert clock.looks <= 22


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
    # What would take gigabytes to compile is not an expression here.
    assert found("$[?match(@.a, 'a{1000000000}')].a", [{"a": "a"}]) == []
    with pytest.raises(BudgetSpent, match=r"ended in match\(\) of its path$"):
        CompiledPath("$[?match(@, '((a|a)*(a|a)*)*[bc]')]").values(
            ["a" * 40], Budget(0.005, lambda: 0.0)
        )


def test_a_long_pattern_of_the_messages_own_is_searched_for_without_tables():
    cpu_s, long = SystemThreads().cpu_s, "aab" * 1_500
    began_s = cpu_s()
    budget = Budget(1_000.0, lambda: 0.0, lambda _seconds: None)
    document = [{"a": "a" * 9_500, "b": long}, {"a": f"x{long}", "b": long}]
    assert CompiledPath("$[?search(@.a, @.b)].a").values(document, budget) == [f"x{long}"]
    assert cpu_s() - began_s < 1.0


def test_the_part_that_finds_little_time_left_is_not_said_to_have_taken_it_all():
    looks = iter([0.0, 0.099, 0.099, 0.099])
    budget = Budget(0.1, lambda: next(looks))
    budget.look()
    with pytest.raises(BudgetSpent) as spent:
        CompiledPath("$[?search(@, '((a|a)*(a|a)*)*[bc]')]").values(["a" * 40], budget)
    text = "used up the message's 100 ms of CPU; it ended in search() of its path"
    assert str(spent.value) == text
    assert spent.value.used_s == 0.1
