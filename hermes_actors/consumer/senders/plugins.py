"""The plug-in seam for senders to endpoints other than http, such as `jms://host/queue`.

A sender is named in `consumers.senders` as `scheme=module:function`. The function is called once
with a `SenderContext` and returns a `SenderProvider`.
"""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from hermes_actors.config.plugins import load_plugin
from hermes_actors.consumer.senders.sender import Sender
from hermes_actors.metadata.catalog import LiveSubscription

_FIELD = "consumers.senders"


class SenderContext(Struct, frozen=True):
    """What a provider may use: the scheme that it is configured for."""

    scheme: str


class SenderProvider(Protocol):
    """Provides the senders for subscriptions whose endpoints have its scheme.

    A sender must keep the contract of `Sender`: it never waits and never raises, and reports each
    outcome once. It reports outcomes as HTTP would: 200 for accepted, 4xx for never, 5xx or a
    `Failure` for what may be retried. A push's route has the endpoint's host, port (0 if none) and
    path. Its lines are the headers that a request would have, including `Authorization: Basic` if
    the endpoint has credentials.
    """

    def sender_of(self, live: LiveSubscription) -> Sender:
        """The sender for this version of a subscription; called again for each new one. Must not
        wait.
        """

    async def run(self) -> None:
        """Hold the senders' resources, on trio, until cancelled; or return at once."""


def load_providers(senders: Sequence[str]) -> dict[str, SenderProvider]:
    """The configured providers by scheme. Raises StartupError."""
    providers: dict[str, SenderProvider] = {}
    for text in senders:
        scheme, _, name = text.partition("=")
        providers[scheme] = load_plugin(
            name,
            SenderContext(scheme),
            field=_FIELD,
            noun="provider of senders",
            parts=("sender_of", "run"),
        )
    return providers


def schemes_of(senders: Sequence[str]) -> tuple[str, ...]:
    """The schemes of the configured providers."""
    return tuple(text.partition("=")[0] for text in senders)
