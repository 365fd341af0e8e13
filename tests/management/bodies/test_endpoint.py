"""Which endpoints are accepted, and that their passwords are never shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.config import EndpointsConfig
from hermes_actors.errors import Refused
from hermes_actors.management.bodies.endpoint import (
    mask_endpoint,
    require_allowed_endpoint,
    require_valid_endpoint,
)
from hermes_actors.security.address_guard import AddressGuard


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://localhost",
        "http://localhost:8080/a/b?c=d#e",
        "https://user:secret@host.example.com:8443/path",
        "http://127.0.0.1:9000/",
        "http://[::1]:9000/",
        "HTTP://host/",
        "http://{host}/orders/{order.id}",
        "http://host/{a}?b={c}",
        "http://host/a_b/",
        "jms://queue",
        "googlepubsub://pubsub.example.com:443/projects/p/topics/t",
        "googlebigquery://projects/p/datasets/d/tables/t",
    ],
)
def test_a_good_endpoint_is_accepted(endpoint):
    require_valid_endpoint(endpoint)


@pytest.mark.parametrize(
    ("endpoint", "problem"),
    [
        ("", "expected <protocol>://<address>"),
        ("host/path", "expected <protocol>://<address>"),
        ("ftp://host/", "protocol 'ftp' is not one of http, https, jms"),
        ("http://", "it has no host"),
        ("http:///path", "it has no host"),
        ("http://my_host/", "underscore"),
        ("http://{a}_b/", "underscore"),
        ("http://-host/", "is not a host name"),
        ("http://a..b/", "is not a host name"),
        ("http://host:port/", "cannot be read"),
        ("http://host:70000/", "cannot be read"),
        ("http://host:0/", "port 0"),
        ("http://[::1/", "cannot be read"),
        ("http://host/a b", "the character ' '"),
        ("http://host/{a", "the character '{'"),
        ("https://ada:p@ss/w:rd#1@billing.test/orders", "%40 for '@'"),
        ("https://ada:p@ss?w:rd@billing.test", "%40 for '@'"),
        ("https://ada:p@ss@billing.test", "%40 for '@'"),
        ("http://host/\r\nX: y", "the character"),
    ],
)
def test_a_bad_endpoint_is_refused_with_the_reason(endpoint, problem):
    with pytest.raises(Refused) as refused:
        require_valid_endpoint(endpoint)
    assert refused.value.message.startswith("Subscription.endpoint '")
    assert problem in refused.value.message


def test_the_operator_can_add_protocols():
    with pytest.raises(Refused):
        require_valid_endpoint("nats://host/subject")
    require_valid_endpoint("nats://host/subject", ["nats"])


@pytest.mark.parametrize(
    ("endpoint", "shown"),
    [
        ("http://user:secret@host/p", "http://user:*****@host/p"),
        ("http://user:se:cr@et@host/p", "http://user:*****@host/p"),
        ("http://user:@host/", "http://user:*****@host/"),
        ("https://ada:p@ss/w:rd#1@billing.test/orders", "https://ada:*****@billing.test/orders"),
        ("http://user@host/", "http://user@host/"),
        ("http://host/a:b@c", "http://host/a:b@c"),
        ("http://host:8080/a@b", "http://host:8080/a@b"),
        ("http://u:p@{host}/", "http://u:*****@{host}/"),
        ("http://host", "http://host"),
    ],
)
def test_only_the_password_is_masked(endpoint, shown):
    assert mask_endpoint(endpoint) == shown


@given(st.text(st.characters(exclude_characters="/?#@", codec="utf-8"), min_size=6))
def test_no_password_survives_the_mask(password):
    assert mask_endpoint(f"http://u:{password}@host/") == "http://u:*****@host/"


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://user:hunter2@my_host/",
        "http://user:hunter2/extra@host/",
        "http://user:hunter2#extra@host/",
        "ftp://user:hunter2@host/",
        "http://user:hun ter2@host/",
        "http://user:hunter2\n@host/",
    ],
)
def test_no_refusal_repeats_a_password(endpoint):
    with pytest.raises(Refused) as refused:
        require_valid_endpoint(endpoint)
    assert "ter2" not in refused.value.message


@given(st.text(max_size=30))
def test_any_text_is_accepted_or_refused(text):
    for endpoint in (text, f"http://{text}", f"http://host/{text}"):
        try:
            require_valid_endpoint(endpoint)
        except Refused as refused:
            assert refused.message  # noqa: PT017 -- either way is fine, another error is not


GUARD = AddressGuard(EndpointsConfig(denied_hosts=["*.evil.example"]))


@pytest.mark.parametrize(
    ("endpoint", "problem"),
    [
        ("http://127.0.0.1:8090/", "127.0.0.1 is a loopback address"),
        ("https://[::1]/", "::1 is a loopback address"),
        ("http://localhost/", "localhost is this machine itself"),
        ("http://user:secret@169.254.169.254/latest/meta-data", "the metadata service of a cloud"),
        ("http://0x7f.1/", "0x7f.1 (127.0.0.1) is a loopback address"),
        ("http://[::ffff:127.0.0.1]/", "is a loopback address"),
        ("http://a.evil.example/{id}", "consumers.endpoints.denied_hosts"),
    ],
)
def test_an_endpoint_that_leads_where_nothing_is_pushed_to_is_refused(endpoint, problem):
    with pytest.raises(Refused) as refused:
        require_allowed_endpoint(endpoint, GUARD)
    assert refused.value.message.startswith("Subscription.endpoint '")
    assert problem in refused.value.message
    assert "secret" not in refused.value.message


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://orders.example/",
        "http://user:secret@10.1.2.3:8080/",
        "http://{host}/orders",
        "http://a:b@{host}.evil.example/",
        "jms://localhost",
        "http://user:127.0.0.1@orders/",
    ],
)
def test_what_only_a_look_up_or_a_message_can_tell_is_accepted(endpoint):
    require_allowed_endpoint(endpoint, GUARD)


async def test_an_endpoint_on_the_node_itself_is_refused_when_made_and_when_changed(api):
    await api.with_topic("shop.orders")
    path = "/topics/shop.orders/subscriptions"
    wrong = {"endpoint": "http://127.0.0.1:8090/"}
    answer = await api.post(path, api.subscription("push", "shop.orders", **wrong))
    assert answer.status_code == 400
    assert "Subscription.endpoint 'http://127.0.0.1:8090/'" in api.message(answer)
    answer = await api.post(path, api.subscription("push", "shop.orders"))
    assert answer.status_code == 201
    answer = await api.put(f"{path}/push", wrong)
    assert answer.status_code == 400
    assert "allow_loopback" in api.message(answer)
