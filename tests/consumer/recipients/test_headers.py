import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.consumer.recipients.headers import USER_AGENT, request_head
from hermes_actors.consumer.senders.sender import parse_lines
from hermes_actors.model.message import Message
from hermes_actors.model.subscription import Header, OAuthPolicy
from hermes_actors.model.trace_context import TraceContext
from tests.values import a_subscription


def subscription(headers=(), **fields):
    return a_subscription(
        endpoint="http://sink", headers=[Header(name, value) for name, value in headers], **fields
    )


def lines_of(headers=(), propagated=(), retries=0, authorization="", message_id="abc", **fields):
    head = request_head(subscription(headers, **fields), authorization)
    message = Message(id=message_id, body=b"{}", published_at_ms=1, propagated=tuple(propagated))
    lines = head.lines(head.message_lines(message), retries)
    return [(name.decode(), value.decode()) for name, value in parse_lines(lines)]


OURS = [
    ("User-Agent", USER_AGENT),
    ("Content-Type", "application/json"),
    ("Keep-Alive", "true"),
]


def test_a_plain_push_says_who_what_and_which():
    assert lines_of(retries=3) == [
        *OURS,
        ("Hermes-Message-Id", "abc"),
        ("Hermes-Retry-Count", "3"),
    ]


def test_identity_headers_and_authorization_come_when_asked_for():
    lines = lines_of(
        subscription_identity_headers_enabled=True, authorization="Basic dTpw", headers=[("A", "1")]
    )
    assert lines == [
        *OURS,
        ("Authorization", "Basic dTpw"),
        ("Hermes-Topic-Name", "shop.orders"),
        ("Hermes-Subscription-Name", "push"),
        ("Hermes-Message-Id", "abc"),
        ("Hermes-Retry-Count", "0"),
        ("A", "1"),
    ]


def test_the_message_id_comes_a_second_time_only_with_a_propagated_header():
    assert ("messageId", "abc") not in lines_of(headers=[("A", "1")])
    assert ("messageId", "abc") in lines_of(propagated=[("Trace-Id", "t")])


def test_of_equal_names_the_publishers_comes_first_and_the_fixed_one_too():
    lines = lines_of(headers=[("Trace-Id", "fixed")], propagated=[("Trace-Id", "published")])
    assert [value for name, value in lines if name == "Trace-Id"] == ["published", "fixed"]


@pytest.mark.parametrize(
    "name",
    ["Hermes-Message-Id", "hermes-retry-count", "Content-Type", "CONTENT-LENGTH", "Host",
     "Proxy-Authorization", "Transfer-Encoding", "Connection", "Hermes-Topic-Name"],
)  # fmt: skip
def test_a_header_named_like_ours_is_left_out_and_delivery_goes_on(name):
    lines = lines_of(headers=[(name, "theirs"), ("A", "1")], propagated=[(name, "theirs")])
    assert all(value != "theirs" for _, value in lines)
    assert ("Hermes-Message-Id", "abc") in lines
    assert ("A", "1") in lines
    assert request_head(subscription([(name, "theirs")]), "").dropped == (name,)


def test_a_fixed_authorization_yields_to_credentials_but_serves_without_them():
    assert ("Authorization", "mine") in lines_of(headers=[("Authorization", "mine")])
    lines = lines_of(headers=[("Authorization", "mine")], authorization="Basic dTpw")
    assert [value for name, value in lines if name == "Authorization"] == ["Basic dTpw"]


def test_a_fixed_user_agent_takes_the_place_of_ours():
    lines = lines_of(headers=[("user-agent", "me")])
    assert [value for name, value in lines if name.lower() == "user-agent"] == ["me"]


names = st.text(max_size=10)


@given(
    fixed=st.lists(st.tuples(names, names), max_size=4),
    propagated=st.lists(st.tuples(names, names), max_size=4),
    message_id=st.text(max_size=40),
)
def test_nothing_in_a_header_can_break_the_request(fixed, propagated, message_id):
    head = request_head(subscription(fixed), "")
    message = Message(id=message_id, body=b"", published_at_ms=1, propagated=tuple(propagated))
    raw = head.lines(head.message_lines(message), 0)
    assert raw.endswith(b"\r\n")
    for line in raw[:-2].split(b"\r\n"):
        name, colon, value = line.partition(b": ")
        assert name
        assert colon
        assert not any((byte < 0x20 and byte != 0x09) or byte == 0x7F for byte in value)
        assert name.lower() not in (b"host", b"content-length", b"transfer-encoding")


def test_where_a_token_is_sent_nobody_else_says_who_sends():
    policy = OAuthPolicy(grant_type="clientCredentials", provider_name="sso")
    others = {"headers": [("Authorization", "fixed")], "propagated": [("authorization", "theirs")]}
    names = {name.lower() for name, _ in lines_of(**others, o_auth_policy=policy)}
    assert "authorization" not in names
    assert "authorization" in {name.lower() for name, _ in lines_of(**others)}


@given(
    message_id=st.text(max_size=8),
    propagated=st.lists(st.tuples(st.sampled_from(["A", "traceparent"]), st.just("b")), max_size=2),
    traceparent=st.sampled_from(["", "00-a-b-01"]),
    fixed=st.lists(st.sampled_from(["X", "traceparent"]), max_size=2, unique=True),
    is_event=st.booleans(),
)
def test_a_first_attempt_says_what_any_other_does_but_for_its_number(
    message_id, propagated, traceparent, fixed, is_event
):
    headers = [(name, "v") for name in fixed]
    head = request_head(subscription(headers, cloud_events_enabled=is_event), "Basic abc")
    message = Message(message_id, b"{}", 1, propagated=tuple(propagated), traceparent=traceparent)
    assert head.first_lines(message) == head.lines(head.message_lines(message), 0)


OWN, ATTEMPT = f"00-{'1' * 32}-{'2' * 16}-01", f"00-{'1' * 32}-{'3' * 16}-01"


@pytest.mark.parametrize(
    ("propagated", "trace", "fixed", "expected"),
    [
        ((), None, [], [("traceparent", OWN), ("tracestate", "a=1")]),
        ((), TraceContext(ATTEMPT), [], [("traceparent", ATTEMPT)]),
        ((("Traceparent", OWN),), None, [], [("Traceparent", OWN)]),
        (
            (("Traceparent", OWN), ("TraceState", "a=1")),
            TraceContext(ATTEMPT, "b=2"),
            [],
            [("traceparent", ATTEMPT), ("tracestate", "b=2")],
        ),
        ((), TraceContext(ATTEMPT, "b=2"), [("traceparent", "x")], [("traceparent", "x")]),
        ((), None, [("tracestate", "x")], [("tracestate", "x")]),
    ],
)
def test_a_push_has_one_trace(propagated, trace, fixed, expected):
    message = Message("1", b"", 1, propagated=propagated, traceparent=OWN, tracestate="a=1")
    head = request_head(subscription(fixed), "")
    lines = head.lines(head.message_lines(message, trace), 0).decode().splitlines()
    pairs = [tuple(line.split(": ", 1)) for line in lines]
    assert [pair for pair in pairs if pair[0].lower().startswith("trace")] == expected
