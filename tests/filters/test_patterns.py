"""Which texts match, which patterns are refused, and what bounds a match."""

import pytest

from hermes_actors.filters.failures import FilterInvalid, TooLong
from hermes_actors.filters.loop_time import LoopTime
from hermes_actors.filters.patterns import Pattern, is_for_loop


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("PL", ["PL"], ["PLX", "XPL", "pl", ""]),
        ("PL|DE", ["PL", "DE"], ["PLDE"]),
        ("(?i)pl.*", ["PLx", "pl"], ["xpl", "pl\nx"]),
        ("(?s).*x.*", ["a\nxb"], ["a"]),
        ("^(?!cancelled$).*", ["done", ""], ["cancelled"]),
        (r"\d+", ["12"], ["١٢", "1a"]),
        (r"\w+", ["zolw"], ["żółw"]),
        (r"\p{L}+", ["żółw"], ["a1"]),
        ("(?u)\\w+", ["żółw"], ["-"]),
        ("a++b", ["aab"], ["ab b"]),
        ("[]a{9]+", ["]{9a"], ["b"]),
        ("a{2}(b{2}){2}", ["aabbbb"], ["aabb"]),
        ("", [""], ["a"]),
    ],
)
def test_the_whole_text_must_match(pattern, matching, others):
    compiled = Pattern(pattern)
    assert [compiled.matches(text, None) for text in matching] == [True] * len(matching)
    assert [compiled.matches(text, None) for text in others] == [False] * len(others)


def test_a_match_that_would_never_end_is_left_to_a_worker():
    with pytest.raises(TooLong):
        Pattern("((a|a)*(a|a)*)*[bc]").matches("a" * 60, LoopTime(lambda: 0.0))


@pytest.mark.parametrize("pattern", ["(", "*", "(" * 2_000 + ")" * 2_000, "a" * 10_001, "(?u)("])
def test_what_does_not_compile_is_refused(pattern):
    with pytest.raises(FilterInvalid) as refused:
        Pattern(pattern)
    assert refused.value.field == "matcher"


@pytest.mark.parametrize(
    "pattern",
    [
        "a{1000}",
        "(?:(?:a{20}){20}){20}",
        "a{30}{30}",
        "a" * 501,
        "(" * 20 + "a" + ")+?" * 20,
        "(?:" * 20 + "a" + ")++" * 20,
    ],
)
def test_a_pattern_that_grows_when_it_is_compiled_is_for_a_worker(pattern):
    assert not is_for_loop(pattern)


def test_an_everyday_pattern_is_for_the_loop():
    assert is_for_loop("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
    assert is_for_loop("^(?!cancelled$).*")
