"""Which texts match, which patterns are refused, and what bounds a match."""

import contextlib

import pytest

from hermes_actors.filters.budget import Budget, BudgetSpent
from hermes_actors.filters.failures import FilterInvalid
from hermes_actors.filters.patterns import PATTERN_SIZE_MAX, Pattern
from hermes_actors.runtime.threads import SystemThreads
from tests.filters.budgets import Ticking, ample


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
    assert [compiled.matches(text, ample()) for text in matching] == [True] * len(matching)
    assert [compiled.matches(text, ample()) for text in others] == [False] * len(others)


LONG = "aab" * 1_000


@pytest.mark.parametrize(
    "pattern",
    [
        LONG,
        f".*{LONG}",
        f"(?i){LONG}.*",
        f"(?x){LONG} # the same",
        f"x*({LONG})|{LONG}b",
        f"{LONG}{LONG}{LONG}",
    ],
)
def test_the_first_match_of_a_long_pattern_takes_no_longer_than_others(pattern):
    """The module's tables for such a search took seconds, which no time limit ended."""
    compiled, cpu_s = Pattern(pattern), SystemThreads().cpu_s
    began_s = cpu_s()
    matches = [compiled.matches(text, ample()) for text in ("a" * 9_500, LONG, LONG + "b")]
    assert cpu_s() - began_s < 0.5
    assert matches[1:] == [compiled.matches(text, ample()) for text in (LONG, LONG + "b")]
    assert not matches[0]


@pytest.mark.parametrize(
    "lazy", [".*?", "a{2,}?", "(?:x|.+?)", "(?x).* ?", "(?x).*# so\n ?", r"\\*?"]
)
def test_a_lazy_repetition_is_for_short_patterns(lazy):
    with pytest.raises(FilterInvalid, match="where a repetition is lazy"):
        Pattern(lazy + LONG)
    assert Pattern(lazy + "aab").matches("\\aab" if "\\" in lazy else "aaaab", ample())


@pytest.mark.parametrize("not_lazy", [r"\+?", "x?", "[^?]*", "x++"])
def test_what_only_looks_lazy_may_be_long(not_lazy):
    assert Pattern(f"(?:{not_lazy})?{LONG}").matches(LONG, ample())


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        "*",
        "a{1000000000}",
        "(?:(?:a{1000}){1000}){1000}",
        "(?:x{1000}y{1000}){1000}",
        "((((a{30}){30}){30}))",
        "(a{99999999999999999999})",
        "(?:a{1000}b?){1000}",
        "(" * 20 + "a" + ")+?" * 20,
        "(?:" * 20 + "a" + ")++" * 20,
        "(?=" * 20 + "a" + "){1,}" * 20,
        "(" * 10 + "a" + "){2}" * 10,
        "(a|(?R))",
        "(a)(?1)",
        "(" * 2_000 + ")" * 2_000,
        "a" * 10_001,
        "(?u)(",
    ],
)
def test_what_does_not_compile_or_compiles_without_bound_is_refused(pattern):
    with pytest.raises(FilterInvalid) as refused:
        Pattern(pattern)
    assert refused.value.field == "matcher"


def test_many_repetitions_one_after_another_are_no_large_pattern():
    uuid = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    assert Pattern("|".join([uuid] * 50)).matches("12345678-1234-1234-1234-123456789abc", ample())
    assert not Pattern(f"a{{{PATTERN_SIZE_MAX}}}").matches("a", ample())


def test_a_match_that_would_never_end_spends_what_is_left_of_its_time():
    with pytest.raises(BudgetSpent, match="5 ms of CPU; it ended in its matcher") as spent:
        Pattern("((a|a)*(a|a)*)*[bc]").matches("a" * 60, Budget(0.005, lambda: 0.0))
    assert spent.value.used_s == 0.005


def test_a_long_text_is_matched_in_time():
    text = "x" * 1_000_000
    assert Pattern(".*").matches(text, ample())
    assert not Pattern(".*(y|z).*").matches(text, ample())
    assert Pattern(".*(x|z).*").matches(text, ample())


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (".*a{9000}", "a" * 8_999),
        (".*.*.*.*b", "a" * 300),
        ("(a*)\\1b", "a" * 30_000),
        (".*x.*x.*x.*y", "x" * 3_000),
        ("(a|aa)" * 40, "a" * 30),
        ("a{i}b{i}c{i}d{i}", "x" * 30),
        ("(?:abc){e<=3}x", "ab" * 100),
        ("(?b)(?:abcdefgh){e}", "b" * 100),
    ],
)
def test_a_match_that_may_take_long_looks_at_the_clock_before(pattern, text):
    clock = Ticking()
    with contextlib.suppress(BudgetSpent):
        Pattern(pattern).matches(text, Budget(0.02, clock))
    assert clock.looks >= 1


@pytest.mark.parametrize(
    ("pattern", "text"), [("PL|DE", "PL"), ("(?!DE$).*", "PL"), ("A-.*", "A-17"), (".*x.*", "axb")]
)
def test_a_match_that_is_over_soon_looks_at_no_clock(pattern, text):
    clock = Ticking()
    assert Pattern(pattern).matches(text, Budget(0.0, clock))
    assert clock.looks == 0
