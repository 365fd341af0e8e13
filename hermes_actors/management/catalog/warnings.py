"""Warnings of what is stored, as Hermes stores it, but will not do what its owner expects."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from hermes_actors.config import Config
from hermes_actors.config.publishing import PropagationConfig
from hermes_actors.metadata.registry import Metadata
from hermes_actors.model.endpoints import split_addresses
from hermes_actors.model.subscription import DeliveryMode, DeliveryType, Filter, Subscription

HEADER = "Hermes-Warning"
"""The header of an answer that bears them, joined by `; `."""
_CHARACTERS_MAX = 2_000
"""Clients and proxies take some KB of headers, and lose an answer that has more."""

_BUILT_IN = ("http", "https")
_PLACE = re.compile(r"\{[^{}\s]+\}")


def header_of(warnings: Sequence[str]) -> str:
    """The header's value for these warnings, cut where it is too long for a header."""
    text = "; ".join(warnings).encode("ascii", "backslashreplace").decode()
    text = "".join(each for each in text if each.isprintable())
    return text if len(text) <= _CHARACTERS_MAX else f"{text[:_CHARACTERS_MAX]}..."


class StoredWarnings:
    """Warnings of what the catalog holds now."""

    def __init__(self, metadata: Metadata, config: Config) -> None:
        self._metadata = metadata
        self._config = config

    async def of(self, topic: str, name: str) -> list[str]:
        """Why the subscription as it is stored will not do what its owner expects."""
        live = self._metadata.catalog.subscriptions.get(f"{topic}${name}")
        providers = self._metadata.catalog.oauth_providers
        if live is None:
            return []
        return list(subscription_warnings(live.subscription, providers, self._config))


def subscription_warnings(
    subscription: Subscription, providers: Collection[str], config: Config
) -> Iterator[str]:
    """Give the warnings of a subscription that is stored now.

    `providers` are the names of the OAuth providers there are.
    """
    yield from _endpoint_warnings(subscription.endpoint, config)
    if subscription.delivery_type is DeliveryType.BATCH:
        if subscription.mode is DeliveryMode.BROADCAST:
            yield "mode BROADCAST does not go with deliveryType BATCH; use SERIAL, or ANYCAST"
        if _PLACE.search(subscription.endpoint):
            yield (
                "the endpoint's {field} would be another for each message of a batch; use SERIAL, "
                "or an endpoint without fields"
            )
    policy = subscription.o_auth_policy
    if policy is not None and policy.provider_name not in providers:
        yield (
            f"there is no OAuth provider {policy.provider_name}, and nothing is delivered until "
            "there is; create it with 'hermes oauth-provider create'"
        )
    yield from filter_warnings(subscription.filters, config.frontend.propagation)


def _endpoint_warnings(endpoint: str, config: Config) -> Iterator[str]:
    """Give warnings of schemes that are accepted, as in Hermes, and that have no sender here."""
    if config.consumers.recipients.resolver:
        # It may make an address of http of whatever it is given.
        return
    senders = [text.partition("=")[0] for text in config.consumers.senders]
    known = {*_BUILT_IN, *senders, *config.management.additional_endpoint_protocols}
    # The scheme only: what follows may hold a password.
    schemes = (each.partition("://")[0].lower() for each in split_addresses(endpoint))
    for scheme in dict.fromkeys(schemes):
        if scheme not in known:
            yield (
                f"nothing is delivered to endpoints of scheme {scheme}: it has no sender in "
                "consumers.senders, and http and https only are built in"
            )


def filter_warnings(filters: Iterable[Filter], propagation: PropagationConfig) -> Iterator[str]:
    """Give warnings of header filters whose header no message can bear."""
    allowed = {name.lower() for name in propagation.allowed}
    for each in filters:
        if each.type != "header":
            continue
        if not propagation.enabled:
            yield (
                f"the filter by header {each.header} lets nothing pass: headers are not stored "
                "with messages unless frontend.propagation.enabled is on"
            )
        elif allowed and str(each.header).lower() not in allowed:
            yield (
                f"the filter by header {each.header} lets nothing pass: it is not among "
                "frontend.propagation.allowed"
            )
