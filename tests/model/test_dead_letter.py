"""A dead letter survives its record, and of all entries with its id the last decides."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.model.dead_letter import (
    DETAIL_BYTES_MAX,
    Letter,
    LetterFilter,
    Mark,
    MarkKind,
    OpenLetters,
    UndecodableLetter,
    clipped,
    dlq_topic,
    letter_record,
    mark_record,
    read_entry,
    without_value,
)
from hermes_actors.model.record import Record

texts = st.text(st.characters(codec="utf-8"), max_size=20)
numbers = st.integers(0, 2**53)
header_names = st.sampled_from(["id", "dc", "h-Trace", "dlq-id", "dlq-mark", "dlq-dc"])
headers = st.lists(st.tuples(header_names, st.binary(max_size=20)), max_size=5).map(tuple)
letters = st.builds(
    Letter,
    dc=st.sampled_from(["dc1", "a-b.c_d"]),
    subscription=texts,
    incarnation=numbers,
    log_topic=texts,
    partition=st.integers(0, 100),
    offset=numbers,
    timestamp_ms=numbers,
    key=st.none() | st.binary(max_size=20),
    value=st.binary(max_size=50),
    headers=headers,
    message_id=texts,
    reason=st.sampled_from(["expired", "client-error", "undecodable"]),
    detail=texts,
    attempts=numbers,
    status=st.integers(0, 599),
    at_ms=numbers,
    redrives=st.integers(0, 9),
    missing_bytes=st.integers(0, 9),
)


def a_letter(**fields: Any) -> Letter:
    return msgspec.structs.replace(
        Letter(
            dc="dc1",
            subscription="shop.orders$push",
            incarnation=7,
            log_topic="shop.orders",
            partition=1,
            offset=42,
            timestamp_ms=5,
            key=None,
            value=b"{}",
            headers=(("id", b"m"),),
            message_id="m",
            reason="expired",
            detail="",
            attempts=3,
            status=500,
            at_ms=1_000,
        ),
        **fields,
    )


@given(letters)
def test_a_letter_is_read_as_it_was_written_even_with_headers_named_like_ours(
    letter: Letter,
) -> None:
    record = letter_record(letter)
    assert read_entry(record) == letter
    assert record.headers[: len(letter.headers)] == letter.headers
    assert record.key == letter.subscription.encode()


@given(
    st.lists(st.tuples(texts, numbers), max_size=5),
    numbers,
    st.sampled_from(MarkKind),
    st.booleans(),
)
def test_a_mark_is_read_as_it_was_written(
    closed: list[tuple[str, int]], at_ms: int, kind: MarkKind, has_times: bool
) -> None:
    ids, up_to_ms = tuple(each for each, _ in closed), tuple(time_ms for _, time_ms in closed)
    mark = Mark(kind, ids, at_ms, up_to_ms if has_times else ())
    assert read_entry(mark_record("shop.orders$push", mark)) == mark


def test_a_mark_without_times_is_written_as_ever_and_one_with_too_few_is_undecodable() -> None:
    bare = Mark(MarkKind.REDRIVEN, ("a", "b"), 1)
    assert mark_record("s", bare).value == b'{"ids":["a","b"],"at_ms":1}'
    with pytest.raises(UndecodableLetter, match="one time for each id"):
        read_entry(mark_record("s", Mark(MarkKind.REDRIVEN, ("a", "b"), 1, (1,))))


@given(st.binary(max_size=20), headers)
def test_any_other_record_is_undecodable_and_raises_nothing_else(
    value: bytes, headers: tuple[tuple[str, bytes], ...]
) -> None:
    with pytest.raises(UndecodableLetter):
        read_entry(Record(b"key", value, headers, 1))


@given(st.text(max_size=400))
def test_a_detail_is_cut_to_its_bytes_and_stays_text(text: str) -> None:
    cut = clipped(text)
    assert len(cut.encode("utf-8", "replace")) <= DETAIL_BYTES_MAX
    assert cut == text or cut.endswith("…")


def test_a_letter_without_its_value_says_how_large_that_was() -> None:
    letter = without_value(a_letter(value=b"x" * 5_000, key=b"k" * 2_000))
    assert (letter.value, letter.headers, letter.key) == (b"", (), None)
    assert letter.missing_bytes == 5_000
    assert letter.id == a_letter().id
    assert read_entry(letter_record(letter)) == letter


def test_the_topic_of_a_group_has_the_namespace_before_it() -> None:
    assert dlq_topic("shop") == "_hermes.dlq.shop"
    assert dlq_topic("shop.eu", "test") == "test__hermes.dlq.shop.eu"


entries = st.lists(
    st.one_of(
        st.integers(0, 5),
        st.dictionaries(st.integers(0, 5), st.integers(0, 30), min_size=1, max_size=3),
        st.frozensets(st.integers(0, 5), min_size=1, max_size=3),
    ),
    max_size=30,
)


@given(entries)
def test_told_backwards_the_same_letters_are_open_as_told_forwards(
    steps: list[int | dict[int, int] | frozenset[int]],
) -> None:
    """A number is a letter about that offset, several are a mark for those, with times or not."""

    def mark(step: dict[int, int] | frozenset[int], at_ms: int) -> Mark:
        ids = tuple(a_letter(offset=each).id for each in sorted(step))
        times = tuple(step[each] for each in sorted(step)) if isinstance(step, dict) else ()
        return Mark(MarkKind.REDRIVEN, ids, at_ms, times)

    history = [
        a_letter(offset=step, at_ms=at) if isinstance(step, int) else mark(step, at)
        for at, step in enumerate(steps)
    ]
    expected: dict[str, Letter] = {}
    for entry in history:
        if isinstance(entry, Letter):
            expected[entry.id] = entry
        else:
            for number, letter_id in enumerate(entry.ids):
                held = expected.get(letter_id)
                if held and (not entry.up_to_ms or held.at_ms <= entry.up_to_ms[number]):
                    del expected[letter_id]
    open_letters = OpenLetters()
    found = [entry for entry in reversed(history) if open_letters.take(entry)]
    assert {each.id: each for each in found if isinstance(each, Letter)} == expected
    assert len(found) == len(expected)


@pytest.mark.parametrize(
    ("wanted", "is_meant"),
    [
        (LetterFilter(), True),
        (LetterFilter(ids=("dc1:7:1:42",)), True),
        (LetterFilter(ids=("dc2:7:1:42",)), False),
        (LetterFilter(reasons=("expired", "undecodable")), True),
        (LetterFilter(reasons=("client-error",)), False),
        (LetterFilter(statuses=(500,)), True),
        (LetterFilter(statuses=(404,)), False),
        (LetterFilter(message_id="m"), True),
        (LetterFilter(message_id="n"), False),
        (LetterFilter(since_ms=1_000, until_ms=1_001), True),
        (LetterFilter(since_ms=1_001), False),
        (LetterFilter(until_ms=1_000), False),
    ],
)
def test_a_filter_means_what_it_names(wanted: LetterFilter, is_meant: bool) -> None:
    assert wanted.compiled()(a_letter()) is is_meant
