"""Which messages pass a subscription's filters."""

import itertools
from contextlib import suppress

import pytest

from hermes_actors.filters.compiled import LOOP_BYTES_MAX, Candidate, Filters, is_soon_compiled
from hermes_actors.filters.failures import FilterFailed, FilterInvalid, NotJson, TooLong
from hermes_actors.filters.loop_time import LoopTime
from hermes_actors.model.subscription import Filter


def jsonpath(path, matcher, strategy="all"):
    return Filter(type="jsonpath", path=path, matcher=matcher, matching_strategy=strategy)


def header(name, matcher):
    return Filter(type="header", header=name, matcher=matcher)


def rejects(filters, body=b"{}", propagated=()):
    return Filters(filters).rejects(Candidate(body, propagated))


@pytest.mark.parametrize("leaf", [b"1", b"123456789012345678901234567890"])
def test_a_message_however_deep_fails_the_filter_at_most(leaf):
    for depth in range(800, 1_100, 5):
        body = b"[" * depth + leaf + b"]" * depth
        with suppress(FilterFailed):
            rejects([jsonpath("$", ".*")], body)


@pytest.mark.parametrize(
    ("body", "matcher"),
    [
        (b'{"v":"PL"}', "PL"),
        (b'{"v":"\\u017c"}', "ż"),
        (b'{"v":true}', "true"),
        (b'{"v":12}', "12"),
        (b'{"v":1.50}', "1\\.5"),
        (b'{"v":123456789012345678901234567890}', "123456789012345678901234567890"),
        (b'{"v":{"b": 1, "a": [true, null]}}', '\\{"b":1,"a":\\[true,null\\]\\}'),
        (b'{"v":[123456789012345678901234567890]}', "\\[123456789012345678901234567890\\]"),
        (b'{"v":[]}', "\\[\\]"),
        (b'{"v":""}', ""),
    ],
)
def test_values_are_compared_as_text(body, matcher):
    assert rejects([jsonpath("$.v", matcher)], body) == ""
    assert rejects([jsonpath("$.v", matcher + "x")], body) == "jsonpath"


def test_no_value_and_null_are_rejected_whatever_the_matcher_and_the_strategy():
    for strategy in ("all", "any"):
        assert rejects([jsonpath("$.v", ".*", strategy)], b'{"w":1}') == "jsonpath"
        assert rejects([jsonpath("$.v", ".*", strategy)], b'{"v":null}') == "jsonpath"
        assert rejects([jsonpath("$.v[*]", ".*", strategy)], b'{"v":[]}') == "jsonpath"
        assert rejects([jsonpath("$.v[*]", ".*", strategy)], b'{"v":["a",null]}') == "jsonpath"


def test_all_values_or_any_must_match():
    body = b'{"v":[{"c":"a"},{"c":"b"},{}]}'
    assert rejects([jsonpath("$.v[*].c", "a|b")], body) == ""
    assert rejects([jsonpath("$.v[*].c", "a")], body) == "jsonpath"
    assert rejects([jsonpath("$.v[*].c", "a", "any")], body) == ""
    assert rejects([jsonpath("$.v[*].c", "a", "ANY")], body) == ""
    assert rejects([jsonpath("$.v[*].c", "x", "any")], body) == "jsonpath"


def test_a_header_is_found_by_its_exact_name():
    propagated = (("Country", "PL"), ("country", "DE"))
    assert rejects([header("Country", "PL")], propagated=propagated) == ""
    assert rejects([header("Country", "P")], propagated=propagated) == "header"
    assert rejects([header("COUNTRY", ".*")], propagated=propagated) == "header"
    assert rejects([header("Country", ".*")]) == "header"


def test_all_filters_must_pass_and_the_first_that_does_not_is_named():
    filters = [header("Country", "PL"), jsonpath("$.v", "1")]
    assert rejects(filters, b'{"v":1}', (("Country", "PL"),)) == ""
    assert rejects(filters, b'{"v":2}', (("Country", "PL"),)) == "jsonpath"
    assert rejects(filters, b"not JSON", (("Country", "DE"),)) == "header"
    assert rejects([], b"not JSON") == ""


@pytest.mark.parametrize(
    "body", [b"", b"{", b"text", b'"\xff"', b'{"v":NaN}', b"[" * 5_000 + b"]" * 5_000, b"1e400"]
)
def test_a_body_that_is_not_json_fails_and_says_which_filter_wanted_it(body):
    with pytest.raises(NotJson, match=r"^filters\[1\]: the message is not JSON"):
        rejects([header("Country", ".*"), jsonpath("$.v", ".*")], body, (("Country", ""),))


@pytest.mark.parametrize(
    ("filters", "body"),
    [
        ([jsonpath("$.v", "((a|a)*(a|a)*)*[bc]")], b'{"v":"%s"}' % (b"a" * 60)),
        ([jsonpath("$.a[*]", "1")], b'{"a":[' + b"1," * 200 + b"1]}"),
        ([jsonpath("$..a", "1")], b'{"b":[' + b'{"a":1},' * 8_000 + b"{}]}"),
        ([jsonpath("$.v", "1")], b'{"v":"1","x":"' + b"x" * LOOP_BYTES_MAX + b'"}'),
        ([jsonpath("$.a[?match(@.a, 'x*')]", "1")], b'{"a":[{"a":"x"}]}'),
    ],
)
def test_what_may_take_long_is_left_to_a_worker(filters, body):
    with pytest.raises(TooLong):
        Filters(filters).rejects(Candidate(body), LoopTime(lambda: 0.0))


def test_all_filters_of_a_message_share_one_time():
    ticks = itertools.count()
    filters = Filters([jsonpath("$.a", "1")] * 10)
    with pytest.raises(TooLong):
        filters.rejects(Candidate(b'{"a":1}'), LoopTime(lambda: next(ticks) / 5_000))


def test_filters_that_are_soon_compiled_are_few_and_small():
    assert is_soon_compiled([jsonpath("$.a", "PL|DE")] * 10)
    assert not is_soon_compiled([jsonpath("$.a", "PL|DE")] * 200)
    assert not is_soon_compiled([jsonpath("$.a", "(?:ab){900}")])
    assert not is_soon_compiled([jsonpath("$.a", "a" * 1_000_000)])


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (jsonpath("$.", ".*"), r"^filters\[0\]\.path must be a JSONPath"),
        (jsonpath(None, ".*"), r"^filters\[0\]\.path must not be null"),
        (jsonpath("$.a", "("), r"^filters\[0\]\.matcher must be a regular expression"),
        (header(None, ".*"), r"^filters\[0\]\.header must not be null"),
        (
            Filter(type="xpath", path="a", matcher=""),
            r"^filters\[0\]\.type 'xpath' is not a filter",
        ),
    ],
)
def test_what_cannot_be_compiled_is_refused_by_the_name_of_its_field(wanted, message):
    with pytest.raises(FilterInvalid, match=message):
        Filters([wanted])
