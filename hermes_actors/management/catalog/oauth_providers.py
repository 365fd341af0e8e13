"""Providers of OAuth tokens: administrators create, change and remove them. Their secrets are never
shown.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.management.bodies.constraints import within_ranges
from hermes_actors.management.bodies.decoding import decode_plain, merge
from hermes_actors.management.bodies.endpoint import address_problem
from hermes_actors.management.bodies.views import drop_unused
from hermes_actors.management.changes import Changes
from hermes_actors.metadata.bodies import oauth_body
from hermes_actors.metadata.catalog import LiveOAuthProvider
from hermes_actors.metadata.commands import Absent, Alive, Change, StampIs, delete, put
from hermes_actors.metadata.keys import oauth_key
from hermes_actors.metadata.registry import Metadata
from hermes_actors.model.labels import label_violations
from hermes_actors.model.names import NAME_RULE, is_name_part
from hermes_actors.model.oauth import OAuthProvider
from hermes_actors.model.redaction import MASK
from hermes_actors.security.address_guard import AddressGuard

_NAMED_MAX = 3


class OAuthProviders:
    """The providers in one datacentre's metadata. All methods are trio coroutines."""

    def __init__(self, metadata: Metadata, changes: Changes, guard: AddressGuard) -> None:
        self._metadata = metadata
        self._changes = changes
        self._guard = guard

    async def names(self) -> list[str]:
        """The names of all providers, sorted."""
        return sorted(self._metadata.catalog.oauth_providers)

    async def get(self, name: str) -> dict[str, Any]:
        """One provider's JSON object, its secret masked. Raises Refused: 404."""
        shown = replace(self._live(name).provider, client_secret=MASK)
        view: dict[str, Any] = msgspec.to_builtins(shown)
        drop_unused(shown, view)
        return view

    async def create(self, body: Mapping[str, Any]) -> None:
        """Create a provider.

        Raises Refused: OAUTH_PROVIDER_ALREADY_EXISTS, VALIDATION_ERROR.
        """
        provider = decode_plain(OAuthProvider, body)
        self._require_valid(provider)
        key = oauth_key(provider.name)

        def decide() -> Change:
            if provider.name in self._metadata.catalog.oauth_providers:
                raise Refused(
                    f"OAuth provider {provider.name} already exists; change it by PUT",
                    ErrorCode.OAUTH_PROVIDER_ALREADY_EXISTS,
                )
            return put(key, oauth_body(provider), Absent(key))

        await self._changes.make(decide)

    async def update(self, name: str, patch: Mapping[str, Any]) -> None:
        """Change the fields that the patch names. A masked secret means the stored one.

        Raises Refused: OAUTH_PROVIDER_NOT_EXISTS, VALIDATION_ERROR.
        """

        def decide() -> Change | None:
            live = self._live(name)
            wanted = dict(patch)
            if wanted.get("clientSecret") == MASK:
                del wanted["clientSecret"]
            new = decode_plain(OAuthProvider, merge(msgspec.to_builtins(live.provider), wanted))
            if new.name != name:
                raise Refused(f"OAuthProvider.name is '{new.name}', but the path names '{name}'")
            self._require_valid(new)
            moves = new.token_endpoint != live.provider.token_endpoint
            if moves and wanted.get("clientSecret") is None:
                raise Refused(
                    "OAuthProvider.clientSecret is needed to change tokenEndpoint, to which it is "
                    "sent; give the secret"
                )
            if new == live.provider:
                return None
            key = oauth_key(name)
            return put(key, oauth_body(new), StampIs(key, live.stamp))

        await self._changes.make(decide)

    async def delete(self, name: str) -> None:
        """Remove a provider that no subscription uses. Raises Refused."""

        def decide() -> Change:
            live = self._live(name)
            users = self._users(name)
            if users:
                more = f" and {len(users) - _NAMED_MAX} more" if len(users) > _NAMED_MAX else ""
                raise Refused(
                    f"OAuth provider {name} is used by {', '.join(users[:_NAMED_MAX])}{more}; "
                    "remove it from their oAuthPolicy first"
                )
            key = oauth_key(name)
            return delete(key, Alive(key, live.incarnation))

        await self._changes.make(decide)

    def _users(self, name: str) -> list[str]:
        catalog = self._metadata.catalog
        return sorted(
            each
            for each, live in catalog.subscriptions.items()
            if (policy := live.subscription.o_auth_policy) is not None
            and policy.provider_name == name
        )

    def _live(self, name: str) -> LiveOAuthProvider:
        live = self._metadata.catalog.oauth_providers.get(name)
        if live is None:
            raise Refused(
                f"OAuth provider {name} does not exist", ErrorCode.OAUTH_PROVIDER_NOT_EXISTS
            )
        return live

    def _require_valid(self, provider: OAuthProvider) -> None:
        text = "; ".join(_violations(provider, self._guard))
        if text:
            raise Refused(text)


def _violations(provider: OAuthProvider, guard: AddressGuard) -> Iterator[str]:
    if not is_name_part(provider.name) or not provider.name.strip("."):
        yield f'OAuthProvider.name must match "{NAME_RULE}" and be more than dots'
    problem = _endpoint_problem(provider.token_endpoint, guard)
    if problem:
        yield f"OAuthProvider.tokenEndpoint {problem}"
    if not provider.client_id:
        yield "OAuthProvider.clientId must not be empty"
    if provider.client_secret == MASK:
        yield (
            f"OAuthProvider.clientSecret: {MASK} means the stored secret, but none is "
            "stored; give the secret"
        )
    yield from within_ranges("OAuthProvider", provider)
    yield from label_violations("OAuthProvider.labels", provider.labels)


def _endpoint_problem(endpoint: str, guard: AddressGuard) -> str:
    """What is wrong with a token endpoint, or an empty string. The text does not quote the
    endpoint, because it may contain a password.
    """
    if problem := address_problem(endpoint, ("http", "https")):
        return f"is not valid: {problem}"
    parts = urlsplit(endpoint)
    if parts.username is not None or parts.password is not None:
        return "must not hold user and password; they are clientId and clientSecret"
    refusal = guard.refusal_of_host(parts.hostname or "")
    return f"is not allowed: {refusal}" if refusal else ""
