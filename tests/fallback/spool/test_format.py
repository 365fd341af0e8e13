"""The bytes of the spool: whatever is cut or flipped, what is intact is found, nothing invented."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.fallback.spool.format import (
    HEADER_BYTES,
    MARK,
    Damage,
    Kind,
    SegmentName,
    SpoolEntry,
    UndecodableEntry,
    UnknownVersion,
    decode_done,
    decode_entry,
    encode_done,
    encode_entry,
    frames,
    header,
    parse_name,
    read_frame,
    read_header,
    scan,
)
from hermes_actors.model.message import Message
from hermes_actors.model.topic import Ack

SALT = "00112233445566ff"


def frame(kind: Kind, payload: bytes, at: int, salt: str) -> bytes:
    return frames(kind, [payload], at, salt)[0]


# Bodies that look like the format's own bytes are the ones that could mislead it.
bodies = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.just(MARK),
        st.just(frame(Kind.ENTRY, b"inner", HEADER_BYTES, "ffffffffffffffff")),
    ),
    max_size=3,
).map(b"".join)
payload_lists = st.lists(bodies, min_size=1, max_size=8)


def segment(payloads: list[bytes]) -> tuple[bytes, list[int]]:
    content, places = frames(Kind.ENTRY, payloads, HEADER_BYTES, SALT)
    return header(SALT) + content, places


def entry(body: bytes = b"{}", key: bytes | None = b"k") -> SpoolEntry:
    message = Message(
        "an-id", body, 1_000, key, (("X-A", "ä"),), "dc1", "spool", "00-aa-bb-01", (), "billing"
    )
    return SpoolEntry("shop.orders", "shop.orders_7", 7, Ack.ALL, 2_000, message)


@given(
    body=st.binary(max_size=200),
    key=st.none() | st.binary(max_size=20),
    sequence=st.integers(0, 2**63),
)
def test_an_entry_comes_back_with_all_that_a_replay_needs(
    body: bytes, key: bytes | None, sequence: int
) -> None:
    assert decode_entry(encode_entry(sequence, entry(body, key))) == (sequence, entry(body, key))


@given(payloads=payload_lists)
def test_what_was_written_is_read_back_in_order(payloads: list[bytes]) -> None:
    data, places = segment(payloads)
    found, damages = scan(data, SALT)
    assert [each.payload for each in found] == payloads
    assert [each.at for each in found] == places
    assert damages == []
    assert read_header(data) is not None


@given(payloads=payload_lists, share=st.floats(0, 1))
def test_any_prefix_gives_exactly_the_entries_that_are_whole_in_it(
    payloads: list[bytes], share: float
) -> None:
    data, places = segment(payloads)
    end = int(share * len(data))
    found, damages = scan(data[:end], SALT)
    ends = [*places[1:], len(data)]
    whole = [payload for payload, at in zip(payloads, ends, strict=True) if at <= end]
    assert [each.payload for each in found] == whole
    assert all(each.is_torn for each in damages)
    assert len(damages) == (end > HEADER_BYTES and end not in (HEADER_BYTES, *ends))


@given(payloads=payload_lists, data=st.data())
def test_a_flipped_byte_costs_at_most_the_entry_in_which_it_lies(
    payloads: list[bytes], data: st.DataObject
) -> None:
    whole, places = segment(payloads)
    at = data.draw(st.integers(0, len(whole) - 1))
    broken = bytearray(whole)
    broken[at] ^= data.draw(st.integers(1, 255))
    found, damages = scan(bytes(broken), SALT)
    hit = sum(place <= at for place in places) - 1
    assert [each.payload for each in found] == payloads[: max(hit, 0)] + payloads[hit + 1 :]
    if hit < 0:
        assert damages == []
        assert read_header(bytes(broken)) is None
    else:
        assert len(damages) == 1
        assert damages[0].at == places[hit]


@given(
    payloads=payload_lists,
    noise=st.lists(st.tuples(st.floats(0, 0.999), st.binary(max_size=30)), max_size=4),
)
def test_no_noise_invents_an_entry(payloads: list[bytes], noise: list[tuple[float, bytes]]) -> None:
    whole, _places = segment(payloads)
    broken = whole
    for where, junk in noise:
        at = int(where * len(broken))
        broken = broken[:at] + junk + broken[at + len(junk) // 2 :]
    found, _damages = scan(broken, SALT)
    remaining = list(payloads)
    for each in found:
        remaining.remove(each.payload)


@given(payloads=payload_lists, tail=st.integers(1, 300))
def test_a_tail_of_zeros_is_a_torn_one(payloads: list[bytes], tail: int) -> None:
    data, _places = segment(payloads)
    found, damages = scan(data + bytes(tail), SALT)
    assert [each.payload for each in found] == payloads
    assert damages == [Damage(len(data), len(data) + tail, is_torn=True)]


def test_damage_before_a_valid_frame_is_not_torn() -> None:
    data, places = segment([b"one", b"two"])
    broken = data[: places[0] + 5] + b"?" + data[places[0] + 6 :]
    assert scan(broken, SALT)[1] == [Damage(places[0], places[1], is_torn=False)]


def test_a_frame_of_the_same_segment_at_another_place_does_not_count() -> None:
    copied = frame(Kind.ENTRY, b"copied", 0, SALT)
    found, _damages = scan(header(SALT) + b"?" + copied, SALT)
    assert found == []


def test_one_frame_is_read_by_its_place() -> None:
    data, places = segment([b"one", b"two"])
    part = data[places[1] :]
    assert read_frame(part, places[1], SALT) == b"two"
    assert read_frame(part, places[0], SALT) is None
    assert read_frame(part, places[1], "ffffffffffffffff") is None


def test_a_newer_format_is_refused_and_not_read_as_this_one() -> None:
    newer = bytearray(header(SALT))
    newer[8] = 2
    assert read_header(bytes(newer)) is None
    newer[-4:] = zlib.crc32(bytes(newer[:-4])).to_bytes(4, "little")
    with pytest.raises(UnknownVersion, match="format 2"):
        read_header(bytes(newer))


@given(places=st.lists(st.integers(0, 2**63), max_size=20))
def test_done_marks_come_back(places: list[int]) -> None:
    assert list(decode_done(encode_done(places))) == places


@given(payload=st.binary(max_size=60))
def test_bytes_that_are_no_entry_are_said_to_be_none(payload: bytes) -> None:
    with pytest.raises(UndecodableEntry):
        decode_entry(payload)


def test_names_of_segments_are_read_back_and_other_files_are_none() -> None:
    name = SegmentName(12, SALT)
    assert parse_name(name.entries) == (name, "spool")
    assert parse_name(name.done) == (name, "done")
    assert parse_name("lock") is None
    assert parse_name("0000000012-xyz.spool") is None
