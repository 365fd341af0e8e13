"""Opens a node's senders from its configuration, and chooses the sender for each version of a
subscription.
"""

import logging
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from urllib.parse import urlsplit

import trio
from msgspec import Struct, field
from msgspec.structs import replace

from hermes_actors.actors.restart import TENANT
from hermes_actors.actors.supervisor import Crash, open_supervisor
from hermes_actors.config import ConsumersConfig, EndpointTlsConfig
from hermes_actors.consumer.senders.connecting import Resolver
from hermes_actors.consumer.senders.http1.pool import PoolLimits
from hermes_actors.consumer.senders.http1.sender import open_http1_sender
from hermes_actors.consumer.senders.httpx.net import HttpxNet
from hermes_actors.consumer.senders.httpx.sender import open_httpx_sender
from hermes_actors.consumer.senders.oauth.request import ANSWER_BYTES_MAX, request_token
from hermes_actors.consumer.senders.oauth.sender import OAuthSender, ProviderOf, TokenRequests
from hermes_actors.consumer.senders.plugins import SenderProvider, load_providers
from hermes_actors.consumer.senders.proxying import Proxy, read_proxy
from hermes_actors.consumer.senders.push_tasks import PushTasks
from hermes_actors.consumer.senders.sender import Sender
from hermes_actors.errors import StartupError
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.endpoints import split_addresses
from hermes_actors.model.subscription import Subscription
from hermes_actors.runtime.clock import system_rng
from hermes_actors.security.address_guard import AddressGuard
from hermes_actors.telemetry.metrics import Metrics

_logger = logging.getLogger(__name__)

WAITING_FOR_TOKENS_MAX = 10_000
"""Maximum number of pushes of a node that wait for OAuth tokens, and of token requests."""


@asynccontextmanager
async def open_senders(
    config: ConsumersConfig, provider_of: ProviderOf, metrics: Metrics
) -> AsyncIterator[Callable[[LiveSubscription], Sender]]:
    """Open all senders and yield the function that chooses a subscription's sender.

    Plain HTTP/1.1 goes through our own sender; HTTP/2 and proxied requests through httpx'
    transport; other schemes through plug-ins. A subscription with an OAuth policy gets a token for
    its pushes.

    `provider_of` finds a token provider by its name. Raises StartupError.
    """
    guard = AddressGuard(config.endpoints)
    idle_s = config.idle_connection_timeout_ms / 1_000
    connect_timeout_s = config.connect_timeout_ms / 1_000
    providers = load_providers(config.senders)
    # Reading the machine's CA certificates takes tens of milliseconds.
    proxy = await trio.to_thread.run_sync(_read_proxy, config)
    resolver = Resolver(trio.lowlevel.current_trio_token().run_sync_soon, trio.current_time)

    async def new_tls(*protocols: str) -> ssl.SSLContext:
        # One context per client, because httpx' transport sets the ALPN protocols on it.
        return await trio.to_thread.run_sync(partial(endpoint_tls, config.tls, *protocols))

    async def new_net() -> HttpxNet:
        return HttpxNet(
            guard=guard,
            resolver=resolver,
            tls=await new_tls(),
            connect_timeout_s=connect_timeout_s,
            connections_max=config.connections_per_origin_max,
            idle_s=idle_s,
            proxy=proxy,
            response_bytes_max=config.response_bytes_max,
        )

    async with AsyncExitStack() as stack:
        plain = await stack.enter_async_context(
            open_http1_sender(
                PoolLimits(
                    connections_max=config.connections_per_origin_max,
                    response_bytes_max=config.response_bytes_max,
                    idle_s=idle_s,
                    connections_per_host_max=config.connections_per_host_max,
                ),
                guard=guard,
                connect_timeout_s=connect_timeout_s,
                tls=await new_tls("http/1.1"),
            )
        )
        http2 = await stack.enter_async_context(open_httpx_sender(await new_net()))
        proxied: Sender | None = None
        if proxy is not None:
            proxied = await stack.enter_async_context(
                open_httpx_sender(await new_net(), http2=False)
            )
        token_net = replace(await new_net(), response_bytes_max=ANSWER_BYTES_MAX)
        token_sender = await stack.enter_async_context(open_httpx_sender(token_net, http2=False))
        nursery = await stack.enter_async_context(trio.open_nursery())
        waiting = PushTasks(nursery, WAITING_FOR_TOKENS_MAX)
        ask = partial(request_token, token_sender)
        # A plug-in that keeps failing affects neither the other senders nor the node.
        supervisor = await stack.enter_async_context(open_supervisor(system_rng(), _log_crash))
        for scheme, each in providers.items():
            supervisor.start_task(f"sender of {scheme}", partial(_run, each), restart=TENANT)
        choice = SenderChoice(
            plain=plain,
            http2=http2,
            proxied=proxied,
            proxy=proxy,
            has_resolver=bool(config.recipients.resolver),
            tokens=TokenRequests(provider_of, ask, waiting, metrics),
            providers=providers,
        )
        try:
            yield choice.sender_of
        finally:
            waiting.close()
            nursery.cancel_scope.cancel()


async def _run(provider: SenderProvider, _stop: trio.Event) -> None:
    # Ends by itself, or is cancelled.
    await provider.run()


def _log_crash(crash: Crash) -> None:
    again = "is not restarted" if crash.delay_s is None else f"restarts in {crash.delay_s:.1f} s"
    _logger.error("%s failed and %s: %r", crash.name, again, crash.error, exc_info=crash.error)


def _read_proxy(config: ConsumersConfig) -> Proxy | None:
    """Read the configured proxy. Raises StartupError."""
    return read_proxy(config.proxy, endpoint_tls(config.tls)) if config.proxy.url else None


class SenderChoice(Struct, frozen=True):
    """All senders of a node. `proxied` speaks HTTP/1.1 through `proxy`, or directly to hosts that
    need no proxy; None without a proxy. `has_resolver`: an operator's resolver chooses the
    addresses, whatever the endpoint says. `providers` has the senders for other schemes.
    """

    plain: Sender
    http2: Sender
    proxied: Sender | None
    proxy: Proxy | None
    tokens: TokenRequests
    has_resolver: bool = False
    providers: Mapping[str, SenderProvider] = field(default_factory=dict)

    def sender_of(self, live: LiveSubscription) -> Sender:
        """The sender for this version of a subscription, with OAuth tokens if it has a policy."""
        sender = self._without_token(live)
        policy = live.subscription.o_auth_policy
        if policy is None:
            return sender
        return OAuthSender(sender, policy, self.tokens)

    def _without_token(self, live: LiveSubscription) -> Sender:
        subscription = live.subscription
        provider = self.providers.get(subscription.endpoint.partition("://")[0].lower())
        if provider is not None:
            return provider.sender_of(live)
        if subscription.http2_enabled:
            return self.http2
        if self.proxied is not None and self._may_be_proxied(subscription):
            return self.proxied
        return self.plain

    def _may_be_proxied(self, subscription: Subscription) -> bool:
        """False only if every address is known to need no proxy."""
        assert self.proxy is not None, "there is a sender through it"
        parts = [urlsplit(each) for each in split_addresses(subscription.endpoint)]
        return self.has_resolver or any(
            "{" in each.netloc or self.proxy.is_for(each.hostname or "") for each in parts
        )


def endpoint_tls(config: EndpointTlsConfig, *protocols: str) -> ssl.SSLContext:
    """A context that verifies certificates and host names and offers these protocols by ALPN.

    Raises StartupError, which names the configuration field of a file that cannot be used.
    """
    try:
        context = ssl.create_default_context(cafile=config.ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise _unusable(
            "ca_file", [config.ca_file], error, "certificates of authorities"
        ) from error
    if config.certificate_file:
        files = [config.certificate_file, config.key_file]
        try:
            context.load_cert_chain(config.certificate_file, config.key_file, _no_password)
        except (OSError, ssl.SSLError) as error:
            what = "a certificate, key_file of its key without a password"
            raise _unusable("certificate_file", files, error, what) from error
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context


def _no_password() -> str:
    # Otherwise OpenSSL would prompt on the terminal.
    return ""


def _unusable(name: str, files: Sequence[str], error: Exception, what: str) -> StartupError:
    return StartupError(
        f"consumers.tls.{name}: {' with '.join(files)} cannot be used: {error}; it is a PEM file "
        f"of {what}"
    )
