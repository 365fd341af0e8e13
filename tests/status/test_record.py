import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.status.reasons import Reason
from hermes_actors.status.record import (
    Flow,
    NodeHeader,
    Published,
    SubscriptionStatus,
    TopicStatus,
    UndecodableStatus,
    clip,
    decode,
    encode,
    encode_part,
)

counts = st.integers(0, 2**63 - 1)
flows = st.builds(Flow, *[counts] * len(msgspec.structs.fields(Flow)))
texts = st.text(max_size=40)
reasons = st.builds(Reason, texts, st.dictionaries(texts, texts | st.integers(-9, 9), max_size=3))
topics = st.builds(TopicStatus, texts, latency_ms=st.none() | st.tuples(st.just(1.5), st.just(9.0)))
subscriptions = st.builds(
    SubscriptionStatus,
    st.lists(reasons, max_size=3).map(tuple),
    flows,
    name=texts,
    lag=st.integers(-1, 2**62),
)


def header(**fields):
    return NodeHeader(node="n1", dc="dc1", boot_id="b", sequence=1, **fields)


@given(st.lists(topics, max_size=9), st.lists(subscriptions, max_size=9))
def test_a_record_reads_as_it_was_written_and_is_hardly_longer_than_its_parts(some, others):
    parts = [encode_part(each) for each in (header(), *some, *others)]
    encoded = encode(parts[0], parts[1 : 1 + len(some)], parts[1 + len(some) :])
    assert len(encoded) <= sum(map(len, parts)) + 64
    read = decode(encoded)
    assert (read.header, read.topics, read.subscriptions) == (header(), tuple(some), tuple(others))


def test_what_a_newer_version_says_more_is_left_out():
    record = msgspec.msgpack.decode(_encoded())
    record["weather"] = {"is": "fine"}
    record["header"]["mood"] = 7
    record["topics"][0] += ["more", 1]
    record["topics"][0][1] += [99]
    record["subscriptions"][0] += [{"more": 1}]
    read = decode(msgspec.msgpack.encode(record))
    assert read == decode(_encoded())


def test_what_an_older_version_does_not_say_has_its_default():
    record = msgspec.msgpack.decode(_encoded())
    del record["subscriptions"]
    record["header"] = {"node": "n1", "dc": "dc1", "boot_id": "b", "sequence": 1}
    record["topics"][0] = ["a.b", [3]]
    read = decode(msgspec.msgpack.encode(record))
    assert read.header == header()
    assert read.topics == (TopicStatus("a.b", Published(3)),)
    assert read.subscriptions == ()


@pytest.mark.parametrize(
    "value", [b"", b"\xc1", b"hello", b"\x93\x01\x02\x03", msgspec.msgpack.encode({"header": {}})]
)
def test_what_is_no_status_record_is_undecodable(value):
    with pytest.raises(UndecodableStatus):
        decode(value)


@given(st.binary(max_size=60))
def test_no_bytes_make_decoding_fail_otherwise(value):
    try:
        decode(value)
    except UndecodableStatus:
        return


@given(st.text(max_size=200), st.integers(3, 300))
def test_a_clipped_text_fits_and_begins_like_the_whole(text, bytes_max):
    clipped = clip(text, bytes_max)
    assert len(clipped.encode()) <= bytes_max
    assert clipped == text or (clipped.endswith("…") and text.startswith(clipped[:-1]))


def _encoded():
    topic, subscription = TopicStatus("a.b", Published(3)), SubscriptionStatus(name="a.b$c")
    head = encode_part(header(reasons=("because",)))
    return encode(head, [encode_part(topic)], [encode_part(subscription)])
