"""However a body is cut on its way, the same messages come out of it."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.publisher.batches.splitting import ArraySplitter, LineSplitter

ODD = [None, True, 7, -2.5, "", "ä", 'a","b', '},{"', "],[", "\\", '\\"', ", ", [], {}]
JSON = st.sampled_from([*ODD, [1, [2, "]"]], {"a": {"b,": [1, {}]}}])
CUTS = st.lists(st.integers(0, 400), max_size=12)


def pieces(body, cuts):
    edges = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    return [body[a:b] for a, b in pairwise(edges)]


def split(splitter, parts):
    found = []
    for part in parts:
        while part:
            messages, part = splitter.feed(part)
            found += messages
    return found + splitter.finish()


@given(st.lists(JSON, max_size=12), CUTS, st.sampled_from([None, 1]), st.booleans())
def test_an_array_is_cut_into_what_the_json_module_reads(values, cuts, indent, is_ascii) -> None:
    body = json.dumps(values, indent=indent, ensure_ascii=is_ascii).encode()
    splitter = ArraySplitter(10_000)
    found = split(splitter, pieces(body, cuts))
    assert not splitter.failure
    assert [json.loads(each) for each in found] == values
    assert all(each in body and each == each.strip() for each in found)


@given(
    st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b" ")), max_size=12),
    st.sampled_from([b"\n", b"\r\n"]),
    st.booleans(),
    CUTS,
    st.integers(1, 50),
)
def test_lines_are_cut_at_their_ends(lines, end, is_ended, cuts, bytes_max) -> None:
    body = end.join(lines) + (end if is_ended else b"")
    expected = [line.removesuffix(b"\r") for line in body.split(b"\n") if line.strip()]
    found = split(LineSplitter(bytes_max), pieces(body, cuts))
    # What is too long may be cut short; what is left of it may be blank, and is nothing then.
    long = [line for line in expected if len(line) > bytes_max]
    assert [each for each in found if len(each) <= bytes_max] == [
        each for each in expected if len(each) <= bytes_max
    ]
    cut = [each for each in found if len(each) > bytes_max]
    assert len([line for line in long if line[: bytes_max + 1].strip()]) <= len(cut) <= len(long)


@pytest.mark.parametrize("count", [999, 1_000, 1_001, 2_500])
def test_after_a_thousand_lines_others_get_their_turn(count) -> None:
    splitter, body = LineSplitter(10), b"1\n" * count + b"2"
    assert len(splitter.feed(body)[0]) == min(count, 1_000)
    assert split(LineSplitter(10), [body]) == [b"1"] * count + [b"2"]


def test_what_is_kept_between_two_pieces_is_bounded() -> None:
    lines = LineSplitter(1_000)
    elements = ArraySplitter(1_000)
    for _ in range(1_000):
        assert lines.feed(b"x" * 500) == ([], b"")
        assert elements.feed(b"x" * 500) == ([], b"")
        assert sum(map(len, lines._parts)) <= 1_002
        assert sum(map(len, elements._parts)) <= 1_000
    assert lines.feed(b"\nnext\n") == ([b"x" * 1_002, b"next"], b"")
    assert elements.finish() == []
    assert "longer than 1000 bytes" in elements.failure


@pytest.mark.parametrize(
    ("body", "found", "failure"),
    [
        (b"", [], "truncated"),
        (b"{}", [], "Expected `array`"),
        (b"[]", [], ""),
        (b" [1] ", [b"1"], ""),
        (b"[1,]", [], "malformed"),
        (b"[1, 2, nope]", [], "malformed"),
        (b"[1, NaN, 2]", [], "malformed"),
        (b"[1] 2", [], "malformed"),
        (b"[" * 100_000 + b"]" * 100_000, [], "recursion"),
        (b"[1" + b",1" * 10_000 + b"]", [], "10001 elements"),
        (b'["' + b"x" * 1_000_000 + b'"]', [], "longer than"),
    ],
)
def test_of_what_is_no_array_nothing_is_taken(body, found, failure) -> None:
    splitter = ArraySplitter(1_000_000)
    assert split(splitter, [body]) == found
    assert failure in splitter.failure
    assert bool(splitter.failure) == bool(failure)
