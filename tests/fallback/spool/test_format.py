"""What was written whole is read back, whatever became of the rest."""

from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.fallback.spool.format import SpoolEntry, decode_entry, encode_entry, scan
from hermes_actors.model.message import Message
from hermes_actors.model.schema import WriterSchema
from hermes_actors.model.topic import Ack

pairs = st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), max_size=2).map(tuple)
messages = st.builds(
    Message,
    st.text(max_size=8),
    st.binary(max_size=40),
    st.integers(0, 2**40),
    st.none() | st.binary(max_size=8),
    propagated=pairs,
    traceparent=st.text(max_size=4),
    attributes=pairs,
    written_with=st.none() | st.builds(WriterSchema, st.integers(0, 9), st.integers(0, 9)),
)
entries = st.builds(
    SpoolEntry,
    st.text(max_size=8),
    st.text(max_size=8),
    st.integers(0, 2**40),
    st.sampled_from(Ack),
    st.integers(0, 2**40),
    messages,
)


@given(entries)
def test_an_entry_comes_back_with_all_that_a_replay_needs(entry: SpoolEntry) -> None:
    assert decode_entry(encode_entry(entry)) == entry


@given(st.lists(entries, max_size=6), st.data())
def test_a_cut_end_costs_what_was_not_written_whole_and_is_no_damage(
    written: list[SpoolEntry], data: st.DataObject
) -> None:
    encoded = [encode_entry(each) for each in written]
    whole = b"".join(encoded)
    cut = data.draw(st.integers(0, len(whole)))
    zeros = bytes(data.draw(st.integers(0, 30)))
    found = scan(whole[:cut] + zeros)
    count = sum(cut >= sum(map(len, encoded[: number + 1])) for number in range(len(encoded)))
    assert [at for at, _size, _entry in found.waiting] == [
        sum(map(len, encoded[:number])) for number in range(count)
    ]
    # Zeros behind a cut entry may stand in for its end, and are found out.
    assert found.damaged == 0 or (zeros and cut < len(whole))


@given(st.lists(entries, min_size=1, max_size=6), st.data())
def test_a_flipped_bit_costs_its_message_or_the_rest_of_the_segment_and_is_counted(
    written: list[SpoolEntry], data: st.DataObject
) -> None:
    encoded = [encode_entry(each) for each in written]
    starts = [sum(map(len, encoded[:number])) for number in range(len(encoded))]
    damaged = bytearray(b"".join(encoded))
    at = data.draw(st.integers(0, len(damaged) - 1))
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    found = scan(bytes(damaged))
    hit = max(start for start in starts if start <= at)
    seen = [start for start, _size, _entry in found.waiting]
    before = [start for start in starts if start < hit]
    behind = [start for start in starts if start > hit]
    if at == hit:
        # The state: only its one value says that the entry is done.
        assert (seen, found.damaged) == (starts, 0)
    elif at < hit + 13:
        assert seen == before
        assert found.damaged == 1
    else:
        assert seen == before + behind
        assert found.damaged == 1
