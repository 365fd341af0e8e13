"""Nothing that a tenant sends or configures runs on the loop without a bound in time.

A walk over the places that ARCHITECTURE.md lists, each driven with hostile sizes. Counted are the
calls that a place makes before it gives way, which are the same on every machine: `CALLS_MAX` take
some milliseconds. What is one call, however long, is bounded by a size that is asserted too.
"""

import base64
import random
import sys
from contextlib import suppress
from itertools import count

import h2.connection
import msgspec
import pytest

from hermes_actors.config import FrontendConfig
from hermes_actors.consumer.batch.assembly import element_of
from hermes_actors.consumer.recipients.headers import CloudEvents
from hermes_actors.consumer.recipients.signing import Signer
from hermes_actors.errors import Refused
from hermes_actors.filters.compiled import LOOP_BYTES_MAX, Candidate, Filters
from hermes_actors.filters.failures import FilterFailed, TooLong
from hermes_actors.filters.loop_time import LoopTime
from hermes_actors.management.bodies.constraints import require_valid_subscription
from hermes_actors.management.bodies.decoding import PARTS_MAX, decode_subscription, json_value
from hermes_actors.management.bodies.endpoint import require_valid_endpoint
from hermes_actors.management.messages.tail import line_of
from hermes_actors.model.message import Envelope, Message, UndecodableRecord, to_record
from hermes_actors.model.record import StoredRecord
from hermes_actors.model.signing_secrets import SigningKey, SigningScheme
from hermes_actors.model.subscription import BatchBody, Filter
from hermes_actors.publisher.batches.forms import form_of
from hermes_actors.publisher.cloudevents import event_in
from hermes_actors.publisher.demands import propagated
from hermes_actors.publisher.edges.http1.connection import TURN_STEPS
from hermes_actors.publisher.edges.http1.heads import Heads
from hermes_actors.publisher.edges.http1.reader import RequestReader
from hermes_actors.publisher.edges.http2.frames import FrameGuard
from hermes_actors.publisher.edges.http2.protocol import Frames
from hermes_actors.publisher.idempotency import KeyWindow, parse_key
from hermes_actors.security.account import BadCredentials
from hermes_actors.security.tokens import TokenRules, header_of
from tests.seeds import seeds

CALLS_MAX = 40_000
MESSAGE_BYTES = 2_097_152
COMMON = Message("", b"", 0)
HEAD = [(f"h{number}", "x" * 6) for number in range(1_400)]


def calls_of(work):
    """How many calls `work` makes, those of the interpreter's own functions included."""
    count = 0

    def profile(_frame, event, _arg):
        nonlocal count
        if event in ("call", "c_call"):
            count += 1

    sys.setprofile(profile)
    try:
        with suppress(FilterFailed, TooLong, Refused, BadCredentials, UndecodableRecord):
            work()
    finally:
        sys.setprofile(None)
    return count


def jsonpath(path, matcher, strategy="all"):
    return Filter(type="jsonpath", path=path, matcher=matcher, matching_strategy=strategy)


def fits(body):
    """The largest of the kind that is decoded on the loop."""
    assert len(body) <= LOOP_BYTES_MAX
    return body


ONES = fits(b'{"a":[' + b"1," * 32_000 + b"1]}")
OBJECTS = fits(b'{"a":[' + b'{"a":1},' * 8_000 + b"{}]}")
TEXT = fits(b'{"a":"' + b"a" * 8_192 + b'"}')


@pytest.mark.parametrize(
    ("filters", "body"),
    [
        ([jsonpath("$.a[*]", "1")] * 100, ONES),
        ([jsonpath("$.a[*]", "2", "any")] * 100, ONES),
        ([jsonpath("$", ".*")] * 100, ONES),
        ([jsonpath("$" + "[*]" * 300, "1")] * 10, ONES),
        ([jsonpath("$..a", "1")] * 100, OBJECTS),
        ([jsonpath("$" + "[*,*]" * 100, "1")] * 10, OBJECTS),
        ([jsonpath("$.a[?$.a == $.a]", "1")] * 100, OBJECTS),
        ([jsonpath("$.a[?match(@.a, '(a|aa)+b')]", "1")], OBJECTS),
        ([jsonpath("$.a", "(a|aa)+b")], TEXT),
        ([jsonpath("$.a", ".*a.*a.*a.*b")] * 100, TEXT),
        ([jsonpath("$.a[*]", "1")] * 100, b'{"a":[' + b"1," * 1_000_000 + b"1]}"),
        ([jsonpath("$.a", "1")], b"[" * MESSAGE_BYTES),
    ],
)
def test_filters_of_a_message(filters, body):
    compiled, ticks = Filters(filters), count(1)
    calls = calls_of(
        lambda: compiled.rejects(Candidate(body), LoopTime(lambda: next(ticks) / 1_000_000))
    )
    assert calls <= CALLS_MAX


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":[' + b"1," * 500_000 + b"1]}",
        b'{"a":[' + b"{}," * 300_000 + b"{}]}",
        b'{"a":' * 170_000,
        b'{"message":"' + b"A" * 1_000_000 + b'"}',
    ],
)
def test_bodies_of_management(body):
    assert calls_of(lambda: json_value(body)) <= CALLS_MAX


@pytest.mark.parametrize(
    "said",
    [
        {"filters": [{}] * 9_900},
        {"filters": [{"type": "jsonpath", "matcher": "a"}] * 3_900},
        {"headers": [{"name": "a", "value": "b"}] * 3_900},
        {"headers": [{"name": "", "value": "b"}] * 3_900},
        {"signing": {"secrets": ["x"] * 19_000}},
        {"subscriptionPolicy": {"retryOn": [1] * 19_000}},
        {"metricsConfig": {"messageProcessing": {"thresholdsMilliseconds": [-1] * 19_000}}},
    ],
)
def test_subscriptions_of_many_parts(said):
    body = {"topicName": "a.b", "name": "c", "endpoint": "http://h", "description": "d"}
    body |= {"owner": {"source": "Plaintext", "id": "s"}} | said

    def check():
        require_valid_subscription(decode_subscription(body))

    # Each part is looked at several times, which takes some 10 ms in all.
    assert calls_of(check) <= 20 * PARTS_MAX
    with pytest.raises(Refused) as told:
        check()
    assert len(told.value.message) <= 4_096


@pytest.mark.parametrize(
    "endpoint", ["http://h/" + "{a}" * 300_000, ";".join(["http://h/a"] * 90_000), "{" * 1_000_000]
)
def test_endpoints(endpoint):
    with pytest.raises(Refused, match="at most 16384"):
        require_valid_endpoint(endpoint)
    assert calls_of(lambda: require_valid_endpoint(endpoint)) <= CALLS_MAX


def test_what_is_pushed():
    keys = [SigningKey(SigningScheme.HMAC_SHA256, bytes([number]) * 32) for number in range(10)]
    signer, body = Signer(keys), b"x" * MESSAGE_BYTES
    assert calls_of(lambda: signer.sign("id", 1, body)) <= CALLS_MAX
    message = Message("id", b'["' + b"x" * MESSAGE_BYTES + b'"]', 1, propagated=tuple(HEAD))
    for form in BatchBody:
        assert calls_of(lambda form=form: element_of(message, form)) <= CALLS_MAX
    events = CloudEvents("shop.orders", "application/json", {})
    event = Message("id", b"{}", 1, attributes=tuple((f"a{n}", "x" * 6) for n in range(1_400)))
    assert calls_of(lambda: events.lines(event)) <= CALLS_MAX


def test_what_is_published():
    claim = KeyWindow(10, 60.0).claim("shop_orders", parse_key("k" * 255), 0.0)
    assert calls_of(lambda: claim.match(None, b"x" * MESSAGE_BYTES)) <= CALLS_MAX
    assert calls_of(lambda: propagated(HEAD, ())) <= CALLS_MAX


@pytest.mark.parametrize(
    "event",
    [
        b"{" + b",".join(b'"a%d":1' % number for number in range(200_000)) + b"}",
        b'{"id":"1","source":"s","type":"t","specversion":"1.0","data":' + b"[" * MESSAGE_BYTES,
        b'{"id":"1","source":"s","type":"t","specversion":"1.0","data":['
        + b"{}," * 600_000
        + b"{}]}",
    ],
)
def test_events_in_json(event):
    assert calls_of(lambda: event_in(event)) <= CALLS_MAX


EVENT = b'{"id":"1","source":"s","type":"t","specversion":"1.0","data":1},\n'


@pytest.mark.parametrize(
    "piece",
    [b"\n", b"1\n", b"[", b'{"a":1},', b'"', b"1,", b'{"message":1}\n', EVENT],
)
@pytest.mark.parametrize(
    "media_type",
    [
        "application/x-ndjson",
        "application/json",
        "application/vnd.hermes.messages+ndjson",
        "application/cloudevents-batch+json",
    ],
)
def test_pieces_of_a_batch(media_type, piece):
    form = form_of(media_type, 65_536, 16_384, COMMON, lambda _pairs: (), takes_events=True)
    form.feed(b"[" if "nd" not in media_type else b"")
    # As much as one read of a connection brings.
    rest = piece * (262_144 // len(piece))
    rests = [rest]
    for _ in range(3):
        assert calls_of(lambda: rests.append(form.feed(rests[-1])[1])) <= CALLS_MAX
    assert calls_of(form.finish) <= CALLS_MAX


def test_a_body_in_chunks_of_one_byte():
    heads = Heads(FrontendConfig())
    reader = RequestReader(heads)
    reader.receive(b"POST /topics/t HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    reader.next()
    # As much as one read of a connection brings.
    reader.receive(b"1\r\na\r\n" * 43_690)

    def turn():
        for _ in range(TURN_STEPS):
            reader.next()

    calls = [calls_of(turn) for _ in range(8)]
    assert max(calls) <= CALLS_MAX
    assert not reader.has_bytes


@pytest.mark.slow
@pytest.mark.parametrize("fields", [[("user-agent", "")] * 550, [("x", "a" * 16_000)]])
def test_the_heads_of_one_turn_over_http2(fields):
    bytes_max = Heads(FrontendConfig()).bytes_max
    client = h2.connection.H2Connection()
    client.initiate_connection()
    guard = FrameGuard(bytes_max)
    frames = Frames(bytes_max, iter)
    request = [(":method", "POST"), (":path", "/"), (":scheme", "http"), (":authority", "x")]
    client.send_headers(1, request, end_stream=True)
    guard.receive(client.data_to_send())
    for stream in range(3, 103, 2):
        # As one that is known by now, each field is a byte, or some letters are five bits each.
        head = client.encoder.encode(fields)
        client.send_headers(stream, request, end_stream=True)
        data = bytearray(client.data_to_send())
        data[:3] = (int.from_bytes(data[:3], "big") + len(head)).to_bytes(3, "big")
        guard.receive(bytes(data + head))
    while data := guard.take():
        assert calls_of(lambda data=data: list(frames.receive_data(data))) <= CALLS_MAX


def test_messages_that_are_tailed():
    message = Message("id", b"[" * MESSAGE_BYTES, 1, propagated=tuple(HEAD))
    for envelope in Envelope:
        record = to_record(message, envelope)
        stored = StoredRecord(0, 1, 2, None, record.value, record.headers)
        assert calls_of(lambda stored=stored: line_of(stored)) <= CALLS_MAX


def test_tokens():
    rules = TokenRules(frozenset({"HS256"}), "i", frozenset({"a"}), 0.0)
    nested = base64.urlsafe_b64encode(b"[" * 12_000).decode()
    digits = base64.urlsafe_b64encode(b'{"alg":' + b"9" * 12_000 + b"}").decode()
    for head in (nested, digits, "." * 16_000, "x" * 1_000_000):
        assert calls_of(lambda head=head: header_of(f"{head}.e30.x", rules)) <= CALLS_MAX


@pytest.mark.parametrize("seed", seeds(5))
def test_filters_bodies_and_matchers_at_random(seed):
    rng = random.Random(seed)
    for _ in range(20):
        filters, body = hostile(rng)
        compiled = Filters(filters)
        calls = calls_of(lambda body=body, compiled=compiled: _ask(compiled, body))
        assert calls <= CALLS_MAX, (filters, body[:100])


def _ask(compiled, body):
    ticks = count(1)
    compiled.rejects(Candidate(body), LoopTime(lambda: next(ticks) / 100_000))


def hostile(rng):
    """Filters and a body that together are meant to take long."""
    paths = ["$.a[*]", "$..a", "$[*][*]", "$", "$..*", "$.a[?@ == $.a[0]]", "$.a[?length(@) > 0]"]
    matchers = ["1", ".*", "(a|aa)+b", "(.*)*x", "a{e<=3}", "((a*)*)*b", "(?=(a+))a*b\\1"]
    filters = [
        jsonpath(rng.choice(paths), rng.choice(matchers), rng.choice(["all", "any"]))
        for _ in range(rng.randint(1, 20))
    ]
    value = rng.choice([1, "a" * 30, "a" * 3_000, [1, [2]], {"a": 1}, {"a": ["aaaa"] * 5}])
    count = rng.choice([1, 100, 10_000])
    body = msgspec.json.encode({"a": [value] * count, "b": {"a": value}})
    return filters, body if len(body) <= MESSAGE_BYTES else b"{}"
