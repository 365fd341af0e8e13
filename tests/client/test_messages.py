"""What the broker's own code renders and signs is read back unchanged, in each form."""

import base64
import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.consumer.batch.assembly import array_of, element_of
from hermes_actors.consumer.recipients.headers import CloudEvents
from hermes_actors.consumer.recipients.signing import Signer
from hermes_actors.consumer.senders.sender import parse_lines
from hermes_actors.model.message import Message as Stored
from hermes_actors.model.signing_secrets import hmac_secret, parse_secret
from hermes_actors.model.subscription import BatchBody
from hermes_client import DeliveryMalformed, SignatureInvalid, Verifier, parse

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda each: st.lists(each, max_size=3) | st.dictionaries(TEXTS, each, max_size=3),
    max_leaves=8,
)
BODIES = st.builds(
    lambda value, indent: json.dumps(value, indent=indent).encode(),
    VALUES,
    st.sampled_from([None, 1]),
) | st.sampled_from([b"1.10", b"1e400", b"9" * 5_000, b'{"a":1,"a":2}'])
BATCH = {"Hermes-Batch-Id": "b1", "Hermes-Retry-Count": "2", "Content-Type": "application/json"}


def stored(body, **fields):
    return Stored(id="m1", body=body, published_at_ms=1_732_226_000_123, dc="dc1", **fields)


def headers_of(lines):
    return {name.decode(): value.decode() for name, value in parse_lines(lines)}


@given(st.lists(BODIES, max_size=4), st.sampled_from(BatchBody))
def test_the_messages_of_a_batch_are_those_published_byte_for_byte(bodies, form):
    elements = [element_of(stored(each, propagated=(("Trace", "ü"),)), form) for each in bodies]
    messages = parse(BATCH, array_of(elements))
    assert [each.body for each in messages] == bodies
    assert {(each.batch_id, each.attempt) for each in messages} <= {("b1", 3)}
    if form is BatchBody.ENVELOPES:
        for each in messages:
            assert (each.id, each.headers["trace"]) == ("m1", "ü")
            assert each.published_at.timestamp() == 1_732_226_000.123


def test_a_tombstone_has_no_body_alone_and_in_a_batch():
    headers = {"Hermes-Message-Id": "m1", "Hermes-Tombstone": "true", "Partition-Key": "k"}
    external = json.dumps({"Hermes-Tombstone": "true", "Partition-Key": "k"})
    element = (
        f'[{{"_w":true,"metadata":{{"id":"m1","externalMetadata":{external}}},"message":null}}]'
    )
    for found in (parse(headers, b""), parse(BATCH, element.encode())):
        (message,) = found
        assert (message.id, message.key, message.body) == ("m1", "k", b"")
        assert message.is_tombstone


@given(TEXTS.filter(str.strip), TEXTS)
def test_a_cloud_event_has_its_attributes_in_both_modes(subject, data):
    attributes = {"specversion": "1.0", "id": "e1", "source": "/s", "type": "made"}
    attributes |= {"subject": subject, "time": "2026-11-28T10:00:00Z", "partitionkey": "k"}
    message = stored(json.dumps(data).encode(), attributes=tuple(attributes.items()))
    binary = headers_of(CloudEvents("shop.orders", "application/json", {}).lines(message))
    structured = json.dumps({**attributes, "data": data, "extension": None}).encode()
    is_event = {"Content-Type": "application/cloudevents+json; charset=utf-8"}
    for found in (parse(binary, message.body), parse(is_event, structured)):
        (event,) = found
        assert (event.event, event.id, event.key) == (attributes, "e1", "k")
        assert event.json() == data
        assert event.published_at.isoformat() == "2026-11-28T10:00:00+00:00"


def test_a_structured_event_may_have_text_or_bytes():
    for data, body in (
        ({"datacontenttype": "text/plain", "data": "a b"}, b"a b"),
        ({"data": "a b"}, b'"a b"'),
        ({"data_base64": "AAE="}, b"\0\1"),
        ({"number": 7}, b""),
    ):
        (event,) = parse(
            {"content-type": "application/cloudevents+json"},
            json.dumps({"id": "e", **data}).encode(),
        )
        assert event.body == body
    assert event.event == {"id": "e", "number": "7"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[1",
        b"[1]]",
        b"\xff",
        b"[" * 100_000,
        b'[{"_w":true,"metadata":{},"message":1}]',
    ],
)
def test_what_is_no_batch_is_malformed(body):
    with pytest.raises(DeliveryMalformed):
        parse(BATCH, body)


PRIVATE = Ed25519PrivateKey.from_private_bytes(b"s" * 32)
PUBLIC = PRIVATE.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
OLD, NEW = hmac_secret(b"o" * 32), hmac_secret(b"n" * 32)
ED25519 = "whsk_" + base64.b64encode(b"s" * 32).decode()
ED25519_PUBLIC = "whpk_" + base64.b64encode(PUBLIC).decode()


@given(
    st.lists(st.sampled_from([OLD, NEW, ED25519]), min_size=1, unique=True),
    st.lists(st.sampled_from([OLD, NEW, ED25519_PUBLIC]), min_size=1, unique=True),
    st.binary(max_size=50),
    st.integers(-600, 600),
)
def test_a_signature_fits_if_a_secret_is_shared_and_the_time_is_near(signing, known, body, late_s):
    lines = Signer([parse_secret(each) for each in signing]).sign("m1", 1_000_000, body)
    headers = headers_of(lines)
    verifier, now_s = Verifier(known), 1_000_000 + late_s
    shared = {each.replace(ED25519, ED25519_PUBLIC) for each in signing} & set(known)
    if shared and abs(late_s) <= 300:
        assert verifier.verify(headers, body, now_s=now_s) == "m1"
        for changed in ({"webhook-id": "m2"}, {"webhook-timestamp": "1000001"}):
            with pytest.raises(SignatureInvalid, match="wrong signature"):
                verifier.verify(headers | changed, body, now_s=1_000_000)
        with pytest.raises(SignatureInvalid, match="wrong signature"):
            verifier.verify(headers, body + b"x", now_s=now_s)
    else:
        with pytest.raises(SignatureInvalid, match="at most 300 s" if shared else "fits|at most"):
            verifier.verify(headers, body, now_s=now_s)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"webhook-id": None}, "webhook-id is missing"),
        ({"webhook-timestamp": "1e6"}, "not a time in seconds"),
        ({"webhook-signature": "v1,ü v1 , v1a,é"}, "wrong signature"),
    ],
)
def test_odd_headers_are_no_signature(changed, text):
    headers = headers_of(Signer([parse_secret(OLD)]).sign("m1", 1_000_000, b""))
    headers = {name: value for name, value in (headers | changed).items() if value is not None}
    with pytest.raises(SignatureInvalid, match=text):
        Verifier([OLD, ED25519_PUBLIC]).verify(headers, b"", now_s=1_000_000)


@pytest.mark.parametrize("secrets", [[], "", "whsec_?", "whsk_c2VjcmV0", "MfKQ9r8GKYqrTwjU"])
def test_a_secret_that_cannot_be_used_is_refused_and_not_shown(secrets):
    with pytest.raises(ValueError, match="secret") as refused:
        Verifier(secrets)
    assert not secrets or secrets not in str(refused.value)
