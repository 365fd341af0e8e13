import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.consumer.recipients.endpoint import Unresolved, parse_endpoint, parse_endpoints
from hermes_actors.consumer.senders.sender import Origin
from hermes_actors.errors import Refused


def route_of(text, body=b""):
    return parse_endpoint(text, "lane").resolve(body)


@pytest.mark.parametrize(
    ("text", "origin", "target", "host"),
    [
        ("http://sink", ("http", "sink", 80), "/", "sink"),
        ("http://sink:8080/a/b?c=d", ("http", "sink", 8080), "/a/b?c=d", "sink:8080"),
        ("https://sink/", ("https", "sink", 443), "/", "sink"),
        ("https://sink:443/", ("https", "sink", 443), "/", "sink"),
        ("HTTP://sink/x#part", ("http", "sink", 80), "/x", "sink"),
        ("http://[::1]:90/x", ("http", "::1", 90), "/x", "[::1]:90"),
        ("http://user:p%40ss@sink/x", ("http", "sink", 80), "/x", "sink"),
        ("http://sink?q=1", ("http", "sink", 80), "/?q=1", "sink"),
        ("http://bücher.example/ä", ("http", "xn--bcher-kva.example", 80), "/%C3%A4", None),
        ("http://sink/a%2Fb", ("http", "sink", 80), "/a%2Fb", "sink"),
    ],
)
def test_an_endpoint_becomes_origin_target_and_host(text, origin, target, host):
    route = route_of(text)
    assert (route.origin, route.target) == (Origin(*origin), target)
    assert route.start.startswith(f"POST {target} HTTP/1.1\r\nHost: ".encode())
    if host is not None:
        assert route.start.endswith(f"Host: {host}\r\n".encode())


def test_credentials_become_a_basic_header_and_leave_the_address():
    endpoint = parse_endpoint("http://user:p%40ss:w@sink/x", "lane")
    kind, value = endpoint.authorization.split(" ")
    assert kind == "Basic"
    assert base64.b64decode(value) == b"user:p@ss:w"
    assert "p%40ss" not in repr(endpoint.template) + repr(endpoint.route)


@pytest.mark.parametrize(
    "text",
    [
        "sink/x",
        "jms://sink/x",
        "http://",
        "http:///x",
        "http://sink:99999/",
        "http://sink:0/",
        "http://sink:port/",
        "http://sink/a b",
        "http://sink/\r\nX: y",
        "http://[::1/x",
        "http://sink/{}",
        "http://sink/{?q}",
        "http://" + "a" * 70 + "/",
    ],
)
def test_what_is_no_endpoint_is_refused_and_the_field_named(text):
    with pytest.raises(Refused, match=r"^endpoint: "):
        parse_endpoint(text, "lane")


@pytest.mark.parametrize(
    "text",
    [
        "http://user:secret@sink:port/",
        "http://user:secret/word@sink/",
        "http://user:secret?word@sink/",
    ],
)
def test_a_refusal_never_shows_the_password(text):
    with pytest.raises(Refused) as refusal:
        parse_endpoint(text, "lane")
    assert "secret" not in refusal.value.message


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a b/c", "a%20b%2Fc"),
        (7, "7"),
        (1.5, "1.5"),
        (True, "true"),
        ("", ""),
        ("ä&?", "%C3%A4%26%3F"),
    ],
)
def test_a_template_is_filled_from_the_body(value, shown):
    body = json.dumps({"user": {"id": value}}).encode()
    assert route_of("http://sink/u/{user.id}/x?i={user.id}", body).target == (
        f"/u/{shown}/x?i={shown}"
    )


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"id":null}',
        b'{"id":[1]}',
        b'{"id":{}}',
        b"[1]",
        b"not json",
        b"",
        b'{"id":"\xff"}',
        b"[" * 20_000 + b"]" * 20_000,
    ],
    ids=lambda body: repr(body[:12]),
)
def test_a_message_without_the_value_has_no_address(body):
    with pytest.raises(Unresolved):
        route_of("http://sink/{id}", body)


def test_a_host_may_be_a_variable_but_must_become_a_host():
    template = "http://{host}/x"
    assert route_of(template, b'{"host":"sink-1"}').origin.host == "sink-1"
    with pytest.raises(Unresolved):
        route_of(template, b'{"host":"sink/evil"}')
    with pytest.raises(Unresolved):
        route_of(template, b'{"host":""}')


@pytest.mark.parametrize(
    "text",
    ["http://sink:{port}/", "http://{h}:80{p}/in", "http://[::1]:{p}?q=1", "http://u:p@a:{p}"],
)
def test_no_message_chooses_the_port(text):
    with pytest.raises(Refused, match="must not be the port"):
        parse_endpoint(text, "lane", ("*.orders.svc",))
    assert (
        parse_endpoint("http://{h}:81/:{p}", "lane").resolve(b'{"h":"a","p":1}').origin.port == 81
    )


@given(st.text())
def test_no_value_breaks_out_of_the_request_line(value):
    body = json.dumps({"id": value}).encode()
    try:
        route = route_of("http://sink/{id}?q={id}", body)
    except Unresolved:
        return
    assert route.origin == Origin("http", "sink", 80)
    assert route.start.count(b"\r\n") == 2
    assert route.start.split(b"\r\n")[0].count(b" ") == 2


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("http://a/x;http://b/y", ["a", "b"]),
        ("http://a;https://b:90;HTTP://c/", ["a", "b", "c"]),
        ("http://u:p@a/x;y=1;http://b/", ["a", "b"]),
        ("http://a/x;v=1?q=;b", ["a"]),
        ("http://n{id}/;http://b/{id}", ["n7", "b"]),
    ],
)
def test_addresses_are_separated_by_semicolons_before_a_scheme(text, hosts):
    endpoints = parse_endpoints(text, "lane")
    assert [each.resolve(b'{"id":7}').origin.host for each in endpoints] == hosts


@pytest.mark.parametrize("value", ["evil.example", "a.b", "10.0.0.1", "-a", "a:90", "a@b", "ä"])
def test_a_value_fills_no_more_than_one_label_of_the_host(value):
    body = json.dumps({"t": value}).encode()
    for template in ("http://{t}/x", "http://{t}.orders.svc/x", "http://sink-{t}/x"):
        with pytest.raises(Unresolved):
            route_of(template, body)


def test_no_single_label_is_an_address():
    for template in ("http://{t}/x", "http://{t}./x", "http://10.{t}/x"):
        for value in (66051, "66051", "0x8080", "7"):
            body = json.dumps({"t": value}).encode()
            with pytest.raises(Unresolved, match="in the form of a name"):
                route_of(template, body)
    with pytest.raises(Unresolved, match="in the form of a name"):
        route_of("http://{t}/x", b'{"t":2130706433}')
    assert route_of("http://10.0.0.{t}/x", b'{"t":7}').origin.host == "10.0.0.7"


def test_hosts_that_are_named_may_be_filled_in_whole():
    endpoint = parse_endpoint("http://{h}/x", "lane", ("*.orders.svc", "sink"))
    for host in ("eu.orders.svc", "a.b.orders.svc", "sink"):
        assert endpoint.resolve(json.dumps({"h": host}).encode()).origin.host == host
    for host in ("orders.svc", "evil.example", "xorders.svc", "sink.evil", "sink2"):
        with pytest.raises(Unresolved):
            endpoint.resolve(json.dumps({"h": host}).encode())


@given(st.text(max_size=20))
def test_no_value_takes_a_push_out_of_its_domain(value):
    body = json.dumps({"t": value}).encode()
    try:
        route = route_of("http://{t}.orders.svc:8080/x", body)
    except Unresolved:
        return
    label, _, domain = route.origin.host.partition(".")
    assert (domain, route.origin.port) == ("orders.svc", 8080)
    assert label == value.lower()


def test_other_schemes_are_read_where_somebody_sends_to_them():
    endpoint = parse_endpoint("jms://u:p@broker/queue", "lane", (), ("jms",))
    assert endpoint.route.origin == Origin("jms", "broker", 0)
    assert endpoint.route.target == "/queue"
    assert endpoint.authorization.startswith("Basic ")
    assert parse_endpoint("jms://b:90/q", "lane", (), ("jms",)).route.origin.port == 90
    with pytest.raises(Refused, match=r"one of jms$"):
        parse_endpoints("jms://a/q;http://b/", "lane", (), ("jms",))
