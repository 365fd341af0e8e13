"""Which sender pushes a subscription's messages, chosen anew for each version of it."""

from collections.abc import Mapping

from msgspec import Struct, field

from hermes_actors.consumer.senders.oauth.sender import OAuthSender, ProviderOf
from hermes_actors.consumer.senders.oauth.tokens import Tokens
from hermes_actors.consumer.senders.plugins import SenderProvider
from hermes_actors.consumer.senders.proxying import Proxy
from hermes_actors.consumer.senders.push_tasks import PushTasks
from hermes_actors.consumer.senders.sender import Sender
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.endpoints import split_addresses
from hermes_actors.model.subscription import Subscription


class SenderChoice(Struct, frozen=True):
    """All senders of a node. `proxied` speaks HTTP/1.1 through `proxy`, or straight to the hosts
    that need none; None without a proxy. `has_resolver`: an operator's resolver says where
    pushes go, whatever the endpoint. `providers` have the senders of other schemes.
    """

    plain: Sender
    http2: Sender
    proxied: Sender | None
    proxy: Proxy | None
    tokens: Tokens
    waiting: PushTasks
    provider_of: ProviderOf
    has_resolver: bool = False
    providers: Mapping[str, SenderProvider] = field(default_factory=dict)

    def sender_of(self, live: LiveSubscription) -> Sender:
        """The sender for this version of a subscription, with a token where it wants one."""
        sender = self._without_token(live)
        policy = live.subscription.o_auth_policy
        if policy is None:
            return sender
        return OAuthSender(sender, policy, self.provider_of, self.tokens, self.waiting)

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
        """Return False only where each address is known to be reached without the proxy."""
        assert self.proxy is not None, "there is a sender through it"
        hosts = [_host(each) for each in split_addresses(subscription.endpoint)]
        return self.has_resolver or any("{" in each or self.proxy.is_for(each) for each in hosts)


def _host(address: str) -> str:
    """The host of a valid endpoint; with its variables where it is a template."""
    authority = address.partition("://")[2]
    end = min((at for mark in "/?#" if (at := authority.find(mark)) >= 0), default=len(authority))
    host = authority[:end].rpartition("@")[2]
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
