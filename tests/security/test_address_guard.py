import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.config import ConfigError, EndpointsConfig, load
from hermes_actors.security.address_guard import AddressGuard

DEFAULT = AddressGuard(EndpointsConfig())
LOCAL = AddressGuard(EndpointsConfig(allow_loopback=True))

NEVER = [
    ("100.100.100.200", "metadata"),
    ("168.63.129.16", "metadata"),
    ("fd00:ec2::254", "metadata"),
    ("fd00:ec2::254%1", "metadata"),
    ("64:ff9b::a83f:8110", "reserved"),
    ("64:ff9b::a00:1", "reserved"),
    ("64:ff9b:1::a00:1", "reserved"),
    ("::a00:1", "reserved"),
    ("169.254.169.254", "metadata"),
    ("::ffff:169.254.169.254", "metadata"),
    ("169.254.170.2", "link-local"),
    ("fe80::1", "link-local"),
    ("0.0.0.0", "unspecified"),
    ("::", "unspecified"),
    ("0.1.2.3", "reserved"),
    ("224.0.0.1", "multicast"),
    ("ff02::1", "multicast"),
    ("255.255.255.255", "reserved"),
    ("198.18.0.1", "reserved"),
    ("2001:2::1", "reserved"),
    ("2002:a9fe:a9fe::1", "metadata"),
    ("2001:0:808:808::5601:5601", "metadata"),
]


@pytest.mark.parametrize(("address", "word"), NEVER, ids=[each[0] for each in NEVER])
def test_some_addresses_are_refused_whatever_is_allowed(address, word):
    guard = AddressGuard(
        EndpointsConfig(
            allow_loopback=True, allowed_networks=["0.0.0.0/0", "::/0"], allowed_hosts=["orders"]
        )
    )
    assert word in guard.refusal("orders", address)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"])
def test_loopback_is_for_development(address):
    assert "consumers.endpoints.allow_loopback" in DEFAULT.refusal("orders", address)
    assert LOCAL.refusal("orders", address) == ""


@pytest.mark.parametrize(
    "address", ["10.0.0.1", "172.16.3.4", "192.168.1.1", "100.64.0.1", "fd12::1", "::ffff:10.0.0.1"]
)
def test_private_networks_are_the_usual_case_and_can_be_refused(address):
    assert DEFAULT.refusal("orders", address) == ""
    closed = AddressGuard(EndpointsConfig(allow_private=False))
    assert "consumers.endpoints.allow_private" in closed.refusal("orders", address)
    assert closed.refusal("orders", "93.184.216.34") == ""


def test_a_denial_wins_over_a_permission():
    guard = AddressGuard(
        EndpointsConfig(
            allowed_networks=["10.0.0.0/8"],
            denied_networks=["10.9.0.0/16"],
            allowed_hosts=["*.example.com"],
            denied_hosts=["bad.example.com"],
        )
    )
    assert guard.refusal("orders", "10.1.2.3") == ""
    assert "denied_networks" in guard.refusal("good.example.com", "10.9.2.3")
    assert "denied_networks" in guard.refusal("orders", "::ffff:10.9.2.3")
    assert "denied_hosts" in guard.refusal("BAD.example.com.", "10.1.2.3")


def test_lists_of_what_is_allowed_exclude_the_rest():
    hosts = AddressGuard(EndpointsConfig(allowed_hosts=["*.example.com", "orders"]))
    assert hosts.refusal("a.b.Example.COM", "10.0.0.1") == ""
    assert hosts.refusal("orders", "10.0.0.1") == ""
    for host in ("example.com", "badexample.com", "orders.evil"):
        assert "allowed_hosts" in hosts.refusal(host, "10.0.0.1")
    networks = AddressGuard(EndpointsConfig(allowed_networks=["10.0.0.0/8"]))
    assert networks.refusal("orders", "::ffff:10.0.0.1") == ""
    assert "allowed_networks" in networks.refusal("orders", "11.0.0.1")
    either = AddressGuard(EndpointsConfig(allowed_networks=["10.0.0.0/8"], allowed_hosts=["far"]))
    assert either.refusal("far", "11.0.0.1") == ""
    assert either.refusal("orders", "10.0.0.1") == ""
    assert either.refusal("orders", "11.0.0.1") != ""


def test_a_denied_host_is_known_by_its_unicode_name():
    guard = AddressGuard(EndpointsConfig(denied_hosts=["bücher.example"]))
    assert "denied_hosts" in guard.refusal("xn--bcher-kva.example", "10.0.0.1")


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "[::1]",
        "::ffff:7f00:1",
        "localhost",
        "LOCALHOST.",
        "db.localhost",
    ],
)
def test_what_a_name_or_literal_says_by_itself_is_known_without_a_look_up(host):
    assert DEFAULT.refusal_of_host(host) != ""
    assert LOCAL.refusal_of_host(host) == ""


def test_a_name_that_only_a_look_up_can_tell_is_not_refused_before():
    assert DEFAULT.refusal_of_host("orders.example.com") == ""
    assert "metadata" in LOCAL.refusal_of_host("169.254.169.254")
    assert "metadata" in LOCAL.refusal_of_host("0xa9fea9fe")


def test_what_is_no_address_is_refused():
    assert DEFAULT.refusal("orders", "not an address") == "orders (not an address) is no IP address"


@given(st.ip_addresses())
def test_any_address_has_an_answer_and_ipv4_is_never_hidden_in_its_mapped_form(address):
    problem = DEFAULT.refusal("orders", str(address))
    assert isinstance(problem, str)
    if address.version == 4:
        mapped = ipaddress.IPv6Address(f"::ffff:{address}")
        assert bool(DEFAULT.refusal("orders", str(mapped))) == bool(problem)


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("ALLOWED_NETWORKS", "10.0.0.1/8"),
        ("DENIED_NETWORKS", "orders"),
        ("ALLOWED_HOSTS", "http://orders"),
        ("DENIED_HOSTS", "a.*.b"),
    ],
)
def test_lists_that_hold_something_else_are_refused(field, text):
    with pytest.raises(ConfigError, match=f"consumers.endpoints.{field.lower()}: .*{text[:6]}"):
        load(None, {f"HERMES_CONSUMERS_ENDPOINTS_{field}": text})
