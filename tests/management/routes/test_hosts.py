"""A page whose name was made to mean this machine reaches nothing under that name."""

import msgspec
import pytest

from hermes_actors.config import Config, ConfigError, ManagementConfig
from hermes_actors.config.checks import check
from hermes_actors.management.http.answers import WireRules
from hermes_actors.management.http.origins import Hosts


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8090",
        "localhost.evil.example",
        "127.0.0.1.evil.example:8090",
        "127.0.0.1@evil.example",
        "2130706433",
        "[::1].evil.example",
        "[evil.example]",
        "\xe9vil.example",
        ":8090",
        "management",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_request_for_another_name_is_misdirected(api, host, method):
    headers = [
        (b"host", host.encode("latin-1")),
        (b"origin", b"http://" + host.encode("latin-1")),
    ]
    body = {"json": {"groupName": "forged"}} if method == "POST" else {}
    answer = await api.client.request(method, "/groups", headers=headers, **body)
    assert api.refusal(answer) == (421, "OTHER")
    assert "management.allowed_hosts" in api.message(answer)
    assert (await api.get("/groups")).json() == []


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8090",
        "hermes.localhost:1",
        "127.0.0.1:8090",
        "127.9.9.9",
        "[::1]:8090",
        "10.42.0.7:8090",
        "[fd00::7]",
        "node1:8090",
        "localhost.",
    ],
)
async def test_addresses_the_loopback_and_the_nodes_own_name_are_taken(api, host):
    assert (await api.get("/groups", headers={"host": host})).status_code == 200


@pytest.mark.parametrize(
    "path", ["/status/health", "/status/prometheus", "/livez", "/startupz", "/readyz"]
)
async def test_probes_and_scrapers_may_use_any_name(api, path):
    answer = await api.get(path, headers={"host": "hermes-management.shop.svc:8090"})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("allowed", "answered", "misdirected"),
    [
        (
            ["hermes.example.com", "*.example.org"],
            ["Hermes.Example.com:443", "hermes.example.org"],
            ["www.hermes.example.com", "example.org"],
        ),
        (["*"], ["evil.example"], []),
    ],
)
async def test_the_operator_names_further_hosts(api, allowed, answered, misdirected):
    management = ManagementConfig(allowed_hosts=allowed)
    api.config = msgspec.structs.replace(api.config, management=management)
    api.client = api.rebuilt()
    for host in answered:
        assert (await api.get("/groups", headers={"host": host})).status_code == 200, host
    for host in misdirected:
        assert (await api.get("/groups", headers={"host": host})).status_code == 421, host


@pytest.mark.parametrize(("version", "closes"), [("1.1", True), ("2", False)])
async def test_a_refusal_closes_the_connection_only_where_http_has_a_header_for_that(
    version, closes
):
    sent = []

    async def send(event):
        sent.append(event)

    headers = [(b"host", b"evil.test")]
    scope = {"type": "http", "http_version": version, "method": "GET", "path": "/groups"}
    rules = WireRules(None, "*", Hosts([]), 1.0)
    await rules({**scope, "headers": headers}, None, send)
    assert sent[0]["status"] == 421
    assert ((b"connection", b"close") in sent[0]["headers"]) == closes


@pytest.mark.parametrize("host", ["", "http://a.example", "a.example:80", "*.", "a b"])
def test_what_is_no_host_is_no_setting(host):
    config = Config(management=ManagementConfig(allowed_hosts=[host]))
    with pytest.raises(ConfigError, match=r"management\.allowed_hosts"):
        check(config)
