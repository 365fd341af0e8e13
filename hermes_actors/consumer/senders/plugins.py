"""The seam for senders of your own: endpoints that are not http, such as `jms://host/queue`.

A sender is named in `consumers.senders` as `scheme=module:function`; the function is called once
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
    """The means that a provider may use: the scheme that it was named for."""

    scheme: str


class SenderProvider(Protocol):
    """Gives the senders of subscriptions whose endpoints have its scheme.

    A sender keeps the promise of `Sender`: it never waits and never raises, and tells each outcome
    once. What it made of a push it says as HTTP would: 200 for what was taken, 4xx for what never
    will be, 5xx or a `Failure` for what may be tried again. A push's route has the endpoint's host,
    port (0 where it names none) and path; its lines are the headers that a request would have,
    among them `Authorization: Basic` where the endpoint has credentials.
    """

    def sender_of(self, live: LiveSubscription) -> Sender:
        """The sender for this version of a subscription; asked again for each new one. At once."""

    async def run(self) -> None:
        """Hold what the senders need, on trio, until cancelled; or return at once."""


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
