"""A message comes out of its record as it went in; foreign records are read for what they are."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hermes_actors.model.message import (
    Envelope,
    Headers,
    Message,
    UndecodableRecord,
    Via,
    enveloped,
    from_record,
    is_enveloped,
    is_for_another,
    is_reserved_header,
    to_record,
)
from hermes_actors.model.record import StoredRecord
from hermes_actors.model.schema import WriterSchema
from tests.values import stored as as_stored

text = st.text(st.characters(codec="utf-8"), max_size=20)
header_names = st.from_regex(r"[A-Za-z][A-Za-z-]{0,10}", fullmatch=True).filter(
    lambda name: not is_reserved_header(name)
)
propagated = st.lists(
    st.tuples(header_names, text), max_size=4, unique_by=lambda header: header[0]
).map(tuple)
bodies = st.one_of(
    st.binary(max_size=200),
    st.recursive(
        st.none() | st.booleans() | st.integers() | text,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode()),
    st.sampled_from([b'{"_w":true}', b'{"metadata":1,"message":{}}', b"}", b"not json", b""]),
)
ids = st.uuids(version=4).map(str)
times = st.integers(2, 2**42)
messages = st.builds(
    Message,
    id=ids,
    body=bodies,
    published_at_ms=times,
    key=st.none() | st.binary(max_size=10),
    propagated=propagated,
    dc=st.from_regex(r"[a-z0-9-]{0,6}", fullmatch=True),
    via=st.sampled_from([via.value for via in Via]),
    traceparent=st.sampled_from(["", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"]),
    tracestate=st.sampled_from(["", "congo=t61rcWkgMzE"]),
    written_with=st.none()
    | st.builds(
        WriterSchema,
        version=st.integers(1, 2**31 - 1),
        id=st.integers(0, 2**31 - 1),
        is_framed=st.booleans(),
    ),
)


PLACE = "dc1:shop.orders:3:1042"


def stored(value: bytes, *headers: tuple[str, bytes]) -> StoredRecord:
    return StoredRecord(3, 1_042, 77, None, value, headers, "dc1:shop.orders")


def reread(message: Message, envelope: Envelope = Envelope.NATIVE) -> Message:
    return from_record(as_stored(to_record(message, envelope)))


@given(messages)
def test_a_message_survives_the_native_form(message: Message) -> None:
    assert reread(message) == message


@given(messages)
def test_a_message_survives_the_envelope_but_for_what_it_has_no_place_for(
    message: Message,
) -> None:
    read = reread(message, Envelope.HERMES)
    assert (read.id, read.body, read.published_at_ms, read.key, read.propagated) == (
        message.id,
        message.body,
        message.published_at_ms,
        message.key,
        message.propagated,
    )
    assert (read.dc, read.via) == ("", "local")
    if message.traceparent:
        assert (read.traceparent, read.tracestate) == (message.traceparent, message.tracestate)


@given(messages, st.dictionaries(text, st.integers(), max_size=3))
def test_with_a_json_body_the_envelope_is_json_of_the_known_shape(
    message: Message, body: dict[str, int]
) -> None:
    whole = Message(message.id, json.dumps(body).encode(), 5, propagated=message.propagated)
    assert json.loads(to_record(whole, Envelope.HERMES).value) == {
        "_w": True,
        "metadata": {
            "timestamp": 5,
            "id": message.id,
            "externalMetadata": dict(message.propagated),
        },
        "message": body,
    }


def test_a_native_body_with_the_envelopes_mark_is_not_unwrapped() -> None:
    body = b'{"_w":true,"metadata":{"id":"x","timestamp":1},"message":{"a":1}}'
    message = Message("m", body, 5, dc="")
    assert reread(message).body == body


def test_a_record_of_others_is_passed_on_whole_called_by_its_place_at_its_own_time() -> None:
    message = from_record(stored(b"anything", ("other", b"\x00")))
    assert message == Message(PLACE, b"anything", 77)


def test_a_foreign_record_with_an_id_keeps_it_and_the_records_time() -> None:
    message = from_record(stored(b"x", ("id", b"known"), ("h-Trace", b"t")))
    assert message == Message("known", b"x", 77, propagated=(("Trace", "t"),))


def test_an_older_envelope_names_its_id_message_id() -> None:
    value = b'{"_w":true,"metadata":{"messageId":"old","timestamp":9},"message":{"a":1}}'
    assert from_record(stored(value)) == Message("old", b'{"a":1}', 9)


@pytest.mark.parametrize("metadata", ["{}", '{"timestamp":"soon"}', '{"timestamp":true}'])
def test_an_envelope_without_id_or_time_gets_what_a_foreign_record_gets(metadata: str) -> None:
    value = f'{{"_w":true,"metadata":{metadata},"message":[1]}}'.encode()
    assert from_record(stored(value)) == Message(PLACE, b"[1]", 77)


@pytest.mark.parametrize("own_id", ["a" * 256, r"a\r\nX-Evil: 1"])
def test_an_id_that_no_header_can_carry_is_ignored_in_an_envelope_and_in_a_header(
    own_id: str,
) -> None:
    value = b'{"_w":true,"metadata":{"id":"%b"},"message":1}' % own_id.encode()
    assert from_record(stored(value)).id == PLACE
    header = own_id.encode().decode("unicode_escape").encode()
    assert from_record(stored(b"1", ("id", header))).id == PLACE


def test_record_headers_win_over_the_envelopes_own() -> None:
    value = b'{"_w":true,"metadata":{"id":"x","externalMetadata":{"A":"old"}},"message":1}'
    expected: Headers = (("A", "new"),)
    assert from_record(stored(value, ("h-A", b"new"))).propagated == expected


def test_external_metadata_that_is_no_text_is_left_out() -> None:
    value = b'{"_w":true,"metadata":{"id":"x","externalMetadata":{"A":1,"B":"b"}},"message":1}'
    assert from_record(stored(value)).propagated == (("B", "b"),)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'{"_w":true}', 'without "metadata"'),
        (b'{"_w":true,"metadata":{', "is not JSON"),
        (b'{"_w":true,"metadata":' + b"[" * 100_000, "is not JSON"),
        (b'{"_w":true,"metadata":[],"message":1}', "is not an object"),
        (b'{"_w":true,"metadata":{"id":"x"}}', 'without "message"'),
        (b'{"_w":true,"metadata":{"id":"x"},"message":', 'without "message"'),
        (b'{"_w":true,"metadata":{"id":"\\ud800"},"message":1}', "is not Unicode"),
        (b'{"_w":true,"metadata":{"id":"\xff"},"message":1}', "is not Unicode"),
    ],
)
def test_a_broken_envelope_is_undecodable_and_says_why(value: bytes, reason: str) -> None:
    with pytest.raises(UndecodableRecord, match=reason):
        from_record(stored(value))


OURS = (
    *("id", "dc", "via", "traceparent", "tracestate", "only-for", "sv", "sid", "framing"),
    *("h-A", "ce_id", "content-type"),
)
NOT_OURS = [
    *((name, b"\xff\xfe") for name in OURS),
    *(("id", raw) for raw in (b"", b"a\x00b", b"x" * 300)),
    *((name, raw) for name in ("sv", "sid") for raw in (b"", b"\1", b"\0\0\0\0", b"12345")),
    *[("via", b"1.1 proxy"), ("traceparent", b"junk"), ("tracestate", b"junk"), ("framing", b"x")],
]


@pytest.mark.parametrize("header", NOT_OURS)
def test_a_header_of_others_that_is_only_called_like_ours_is_passed_over(header: Any) -> None:
    assert from_record(stored(b"{}", header)) == Message(PLACE, b"{}", 77)
    kept = Message("x", b"{}", 77, propagated=(("B", "b"),))
    assert from_record(stored(b"{}", header, ("id", b"x"), ("h-B", b"b"))) == kept


@pytest.mark.parametrize(
    "headers",
    [
        [("only-for", b"mobile")],
        [("only-for", b"\xff")],
        [("id", b"x"), ("only-for", b"\xff")],
        [("id", b"x"), ("only-for", b"no name")],
    ],
)
def test_only_what_we_replayed_for_one_subscription_is_for_it_alone(headers: Any) -> None:
    assert not is_for_another(stored(b"{}", *headers), "web")
    replayed = stored(b"{}", *to_record(Message("x", b"{}", 7, only_for="mobile")).headers)
    assert is_for_another(replayed, "web")
    assert not is_for_another(replayed, "mobile")


@pytest.mark.parametrize(
    ("key", "said"), [(None, ()), (b"k1", (("Partition-Key", "k1"),)), (b"\xff", ())]
)
def test_a_tombstone_says_what_it_is_and_of_which_key(key: bytes | None, said: Headers) -> None:
    plain = [("id", b"x"), ("dc", b"d"), ("via", b"local")]
    for headers in ([], [("sv", b"\0\0\0\1"), ("h-Hermes-Tombstone", b"false")], plain):
        record = replace(stored(b"", *headers), key=key, is_tombstone=True)
        message = from_record(record)
        assert message.propagated == (("Hermes-Tombstone", "true"), *said)
        assert (message.is_tombstone, message.body, message.written_with) == (True, b"", None)
        assert json.loads(enveloped(message))["message"] is None


short = st.binary(max_size=4) | st.sampled_from([b"", b"local", b"dc1", b"\xff"])


@given(short, short, short, st.booleans())
def test_a_record_of_our_three_headers_alone_is_read_as_one_with_more(
    message_id: bytes, dc: bytes, via: bytes, is_enveloped: bool
) -> None:
    value = b'{"_w":true,"metadata":{"id":"e"},"message":1}' if is_enveloped else b"{}"
    headers = (("id", message_id), ("dc", dc), ("via", via))

    def read(record: StoredRecord) -> Message | str:
        try:
            return from_record(record)
        except UndecodableRecord as error:
            return str(error)

    alone = read(stored(value, *headers))
    assert alone == read(stored(value, *headers, ("foreign", b"1")))


@given(
    value=st.one_of(
        st.binary(max_size=100),
        st.binary(max_size=60).map(lambda tail: b'{"_w":true,"metadata":{' + tail),
        st.binary(max_size=60).map(
            lambda inner: b'{"_w":true,"metadata":{"id":"' + inner + b'"},"message":1}'
        ),
    ),
    headers=st.lists(
        st.tuples(st.sampled_from(["id", "dc", "via", "h-A", "x"]), st.binary(max_size=6)),
        max_size=3,
    ),
)
def test_whatever_a_record_holds_it_is_read_or_undecodable_and_can_be_stored_again(
    value: bytes, headers: list[tuple[str, bytes]]
) -> None:
    try:
        message = from_record(stored(value, *headers))
    except UndecodableRecord:
        return
    assert reread(message).body == message.body


RESERVED = [
    "Hermes-Message-Id",
    "hermes-Sequence",
    "webhook-id",
    "WEBHOOK-SIGNATURE",
    "Webhook-Timestamp",
    "messageId",
]


@pytest.mark.parametrize("name", RESERVED)
def test_a_record_of_others_brings_no_header_by_which_the_broker_speaks(name: str) -> None:
    native = stored(b"{}", ("id", b"x"), ("dc", b"d"), (f"h-{name}", b"forged"), ("h-A", b"1"))
    assert from_record(native).propagated == (("A", "1"),)
    external = json.dumps({name: "forged", "A": "1"})
    value = f'{{"_w":true,"metadata":{{"id":"x","externalMetadata":{external}}},"message":{{}}}}'
    assert from_record(stored(value.encode())).propagated == (("A", "1"),)
    alone = stored(b"{}", ("id", b"x"), ("dc", b"d"), (f"h-{name}", b"forged"))
    assert from_record(alone).propagated == ()


def test_a_message_in_avro_tells_its_schema_as_hermes_does() -> None:
    message = Message("x", b"\x02", 7, dc="dc1", written_with=WriterSchema(3, 258))
    headers = dict(to_record(message).headers)
    assert (headers["sv"], headers["sid"]) == (b"\0\0\0\3", b"\0\0\1\2")
    assert "framing" not in headers


def test_avro_goes_into_no_envelope_and_is_never_searched_for_one() -> None:
    body = b'\x1a"_w":true'
    message = Message("x", body, 7, written_with=WriterSchema(3, 0))
    record = to_record(message, Envelope.HERMES)
    assert record.headers == (("id", b"x"), ("sv", b"\0\0\0\3"))
    assert record.value == body
    assert reread(message, Envelope.HERMES) == message
    assert not is_enveloped(as_stored(record))
