"""Which sender a version of a subscription gets; proxies and plug-ins as they are configured."""

import ssl
from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing

from hermes_actors.config import ConfigError, ConsumersConfig, EndpointsConfig, ProxyConfig
from hermes_actors.config.checks_endpoints import check_endpoints
from hermes_actors.consumer.opening import SenderChoice, open_senders
from hermes_actors.consumer.recipients.endpoint import parse_endpoint
from hermes_actors.consumer.senders.oauth.sender import OAuthSender, TokenRequests
from hermes_actors.consumer.senders.plugins import load_providers, schemes_of
from hermes_actors.consumer.senders.proxying import Proxy, read_proxy
from hermes_actors.consumer.senders.push_tasks import PushTasks
from hermes_actors.consumer.senders.sender import Push, Sender, SendOutcome
from hermes_actors.errors import StartupError
from hermes_actors.model.subscription import (
    BatchPolicy,
    DeliveryType,
    OAuthPolicy,
    SerialPolicy,
)
from hermes_actors.telemetry.metrics import Metrics

TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
OAUTH = OAuthPolicy(grant_type="clientCredentials", provider_name="sso")


class Named(Sender):
    def __init__(self, name, nursery=None):
        self.name = name
        self.pushes = []
        self._nursery = nursery

    def send(self, push, done):
        self.pushes.append(push)
        self._nursery.start_soon(self._answer, done)

    async def _answer(self, done):
        done(SendOutcome(200))


class Queues:
    """A provider of senders, as an operator may bring one along."""

    def __init__(self, context):
        self.scheme = context.scheme

    def sender_of(self, live):
        return Named(f"{self.scheme} for {live.name}")

    async def run(self):
        """There is nothing to hold."""


def choice_of(nursery, *, no_proxy=None, has_resolver=False, providers=None):
    proxy = None if no_proxy is None else Proxy("http://proxy:3128", "", no_proxy, TLS)
    return SenderChoice(
        plain=Named("plain", nursery),
        http2=Named("http2", nursery),
        proxied=None if proxy is None else Named("proxied"),
        proxy=proxy,
        tokens=TokenRequests({}.get, None, PushTasks(nursery, 10), Metrics("hermes_consumers")),
        has_resolver=has_resolver,
        providers=providers or {},
    )


def changed(live, **fields):
    body = msgspec.structs.replace(live.subscription, **fields)
    return msgspec.structs.replace(live, subscription=body, stamp=live.stamp + 1)


@pytest.mark.parametrize(
    ("fields", "no_proxy", "name"),
    [
        ({}, None, "plain"),
        ({"http2_enabled": True}, None, "http2"),
        ({}, [], "proxied"),
        ({"http2_enabled": True}, [], "http2"),
        ({}, ["sink"], "plain"),
        ({"endpoint": "http://u:p@SINK:80/in?a=b"}, ["sink"], "plain"),
        ({"endpoint": "http://a.inside/;http://b.inside/"}, ["*.inside"], "plain"),
        ({"endpoint": "http://a.inside/;http://b.outside/"}, ["*.inside"], "proxied"),
        ({"endpoint": "http://{tenant}.inside/"}, ["*.inside"], "proxied"),
        ({"endpoint": "http://sink/{id}"}, ["sink"], "plain"),
        ({"endpoint": "http://[fd00::1]:80/"}, ["fd00::/8"], "plain"),
        ({"endpoint": "http://10.1.2.3/"}, ["10.0.0.0/8"], "plain"),
        ({"endpoint": "http://10.1.2.3/"}, ["11.0.0.0/8", "fd00::/8"], "proxied"),
    ],
)
async def test_the_sender_follows_from_the_version(world, nursery, fields, no_proxy, name):
    choice = choice_of(nursery, no_proxy=no_proxy)
    assert choice.sender_of(changed(world.live(), **fields)).name == name


async def test_where_a_resolver_says_where_pushes_go_each_push_finds_its_way(world, nursery):
    choice = choice_of(nursery, no_proxy=["sink"], has_resolver=True)
    assert choice.sender_of(world.live()).name == "proxied"


@pytest.mark.parametrize("delivery_type", list(DeliveryType))
async def test_a_policy_for_tokens_wraps_whatever_the_sender_is(world, nursery, delivery_type):
    choice = choice_of(nursery, providers={"jms": Queues(msgspec.defstruct("C", ["scheme"])("j"))})
    policy = SerialPolicy() if delivery_type is DeliveryType.SERIAL else BatchPolicy()
    for endpoint in ("http://sink/in", "jms://host/queue"):
        live = changed(
            world.live(),
            endpoint=endpoint,
            o_auth_policy=OAUTH,
            delivery_type=delivery_type,
            subscription_policy=policy,
        )
        assert isinstance(choice.sender_of(live), OAuthSender)


# Proxies.


def test_the_proxys_credentials_come_from_a_file_and_are_not_shown(tmp_path):
    file = tmp_path / "proxy"
    file.write_text("hermes:hush:hush\n")
    config = ProxyConfig(url="https://proxy.example.com", credentials_file=str(file))
    proxy = read_proxy(config, TLS)
    assert str(proxy.origin) == "https://proxy.example.com:443"
    assert proxy.auth == (b"hermes", b"hush:hush")
    assert read_proxy(ProxyConfig(), TLS) is None
    assert "hush" not in repr(ProxyConfig(url="http://u:hush@proxy"))


@pytest.mark.parametrize("content", [b"", b"no colon", b"two\nli:nes", b"\xff:\xfe", None])
def test_a_file_without_credentials_is_named(tmp_path, content):
    file = tmp_path / "proxy"
    if content is not None:
        file.write_bytes(content)
    config = ProxyConfig(url="http://proxy", credentials_file=str(file))
    with pytest.raises(StartupError) as caught:
        read_proxy(config, TLS)
    assert "consumers.proxy.credentials_file" in caught.value.message
    assert "colon" not in caught.value.message.replace(str(tmp_path), "")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"proxy": ProxyConfig(url="proxy:3128")}, "consumers.proxy.url"),
        ({"proxy": ProxyConfig(url="socks5://proxy:1080")}, "consumers.proxy.url"),
        ({"proxy": ProxyConfig(url="http://u:hunter2@proxy")}, "consumers.proxy.url"),
        ({"proxy": ProxyConfig(url="http://hunter2:port")}, "consumers.proxy.url"),
        ({"proxy": ProxyConfig(url="http://proxy/path")}, "consumers.proxy.url"),
        ({"proxy": ProxyConfig(no_proxy=["a"])}, "consumers.proxy.url"),
        ({"proxy": ProxyConfig(url="http://p", no_proxy=["a b"])}, "consumers.proxy.no_proxy"),
        ({"senders": ["jms"]}, "consumers.senders"),
        ({"senders": ["http=a:b"]}, "consumers.senders"),
        ({"senders": ["jms=a:b", "jms=c:d"]}, "consumers.senders"),
    ],
)
def test_a_wrong_configuration_is_named_and_shows_no_password(fields, field):
    with pytest.raises(ConfigError) as caught:
        check_endpoints(ConsumersConfig(**fields))
    assert str(caught.value).startswith(field)
    assert "hunter2" not in str(caught.value)


# Plug-ins.


def test_providers_are_loaded_by_scheme(monkeypatch, tmp_path):
    (tmp_path / "acme_queues.py").write_text(
        "class Q:\n"
        "    def __init__(self, context): self.scheme = context.scheme\n"
        "    def sender_of(self, live): return None\n"
        "    async def run(self): pass\n"
        "class Bad:\n"
        "    def __init__(self, context): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    senders = ["jms=acme_queues:Q", "googlepubsub=acme_queues:Q"]
    assert schemes_of(senders) == ("jms", "googlepubsub")
    assert {k: vars(v)["scheme"] for k, v in load_providers(senders).items()} == {
        "jms": "jms",
        "googlepubsub": "googlepubsub",
    }
    for wrong in ("jms=acme_queues:Bad", "jms=acme_queues:None_", "jms=no.such:thing"):
        with pytest.raises(StartupError) as caught:
            load_providers([wrong])
        assert caught.value.message.startswith("consumers.senders")


async def test_the_documented_sender_works_as_it_stands(monkeypatch, tmp_path, nursery, world):
    page = (Path(__file__).parents[2] / "docs" / "delivery.md").read_text()
    code = next(each for each in page.split("```python\n")[1:] if "class Queues" in each)
    (tmp_path / "documented_queues.py").write_text(code.partition("```")[0])
    monkeypatch.syspath_prepend(str(tmp_path))
    providers = load_providers(["jms=documented_queues:queues"])
    nursery.start_soon(providers["jms"].run)
    sender = choice_of(nursery, providers=providers).sender_of(
        changed(world.live(), endpoint="jms://host/queue")
    )
    outcomes = []
    route = parse_endpoint("jms://host/queue", "lane", schemes=("jms",)).resolve(b"")
    sender.send(Push(route, b"", b"{}", 1_000), outcomes.append)
    assert outcomes == []
    await trio.testing.wait_all_tasks_blocked()
    assert outcomes == [SendOutcome(200)]


async def test_open_senders_says_what_it_cannot_open():
    config = ConsumersConfig(
        endpoints=EndpointsConfig(),
        proxy=ProxyConfig(url="http://proxy", credentials_file="/no/such/file"),
    )
    with pytest.raises(StartupError):
        async with open_senders(config, {}.get, Metrics("hermes_consumers")):
            """Not reached."""
