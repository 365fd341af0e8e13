"""Rotates signing secrets: a new secret is added first, and the old ones stay until retired."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from hermes_actors.errors import Refused
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.bodies.decoding import decode_plain
from hermes_actors.management.catalog.subscriptions import Subscriptions
from hermes_actors.model.redaction import HIDDEN, redacted
from hermes_actors.model.signing_secrets import SECRETS_MAX, new_hmac_secret, signing_violations
from hermes_actors.model.subscription import SigningPolicy, Subscription
from hermes_actors.runtime.clock import IdSource


class NewSecret(Struct, frozen=True):
    """The request to rotate. `secret`: the new secret; None to have one generated."""

    secret: str | None = None

    def __repr__(self) -> str:
        return redacted(self, secret=HIDDEN)


class SigningSecrets:
    """The signing secrets of subscriptions. All methods are trio coroutines."""

    def __init__(self, subscriptions: Subscriptions, ids: IdSource) -> None:
        self._subscriptions = subscriptions
        self._ids = ids

    async def rotate(
        self, caller: Caller, topic: str, name: str, body: Mapping[str, Any] = MappingProxyType({})
    ) -> dict[str, Any]:
        """Add a secret, which signs from now on. It is the body's `secret`, or a generated one,
        which only this answer shows. Raises Refused and Unavailable.

        The older secrets sign too until `retire`; above five, the oldest is dropped.
        """
        given = _given(body)
        secret = new_hmac_secret(self._ids) if given is None else given
        kept = 0

        def with_another(old: Subscription) -> Subscription:
            nonlocal kept
            secrets = [] if old.signing is None else old.signing.secrets
            older = [each for each in secrets if each != secret][: SECRETS_MAX - 1]
            kept = len(older)
            return replace(old, signing=SigningPolicy([secret, *older]))

        await self._subscriptions.amend(caller, topic, name, with_another)
        answer: dict[str, Any] = {"olderSecrets": kept}
        return answer if given is not None else {"secret": secret, **answer}

    async def retire(self, caller: Caller, topic: str, name: str) -> None:
        """Keep only the newest secret. Raises Refused and Unavailable."""

        def with_newest(old: Subscription) -> Subscription:
            if old.signing is None:
                raise Refused(
                    f"Subscription {name} of topic {topic} does not sign; rotate its secret first"
                )
            return replace(old, signing=SigningPolicy(old.signing.secrets[:1]))

        await self._subscriptions.amend(caller, topic, name, with_newest)


def _given(body: Mapping[str, Any]) -> str | None:
    secret = decode_plain(NewSecret, body).secret
    if secret is not None and (violations := "; ".join(signing_violations("secret", [secret]))):
        raise Refused(violations)
    return secret
