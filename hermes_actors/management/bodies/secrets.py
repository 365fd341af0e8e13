"""Secrets of a subscription: masked in answers, and kept if an update contains the mask. A caller
who cannot read a secret cannot have it sent to another host.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from hermes_actors.errors import Refused
from hermes_actors.management.bodies.endpoint import (
    addresses_of,
    has_password_at_template,
    mask_endpoint,
    unmask_endpoint,
)
from hermes_actors.model.redaction import MASK, is_secret_header
from hermes_actors.model.subscription import Header, SigningPolicy, Subscription


def masked(subscription: Subscription, *, shows_headers: bool = False) -> Subscription:
    """The subscription with its secrets masked. With `shows_headers`, fixed headers are not
    masked.
    """
    policy, signing, headers = (
        subscription.o_auth_policy,
        subscription.signing,
        subscription.headers,
    )
    if policy is not None and policy.password is not None:
        policy = replace(policy, password=MASK)
    if signing is not None:
        signing = SigningPolicy([MASK] * len(signing.secrets))
    if not shows_headers:
        headers = [
            Header(each.name, MASK) if is_secret_header(each.name) else each for each in headers
        ]
    return replace(
        subscription,
        endpoint=mask_endpoint(subscription.endpoint),
        o_auth_policy=policy,
        signing=signing,
        headers=headers,
    )


def with_secrets_kept(old: Subscription | None, patch: Mapping[str, Any]) -> dict[str, Any]:
    """The patch with its masks replaced by the secrets of `old`.

    Raises Refused for a mask without a stored secret. A new subscription (None) has none.
    """
    kept = dict(patch)
    policy, signing, headers = (kept.get(key) for key in ("oAuthPolicy", "signing", "headers"))
    if isinstance(kept.get("endpoint"), str):
        kept["endpoint"] = unmask_endpoint(kept["endpoint"], "" if old is None else old.endpoint)
    if isinstance(policy, Mapping) and policy.get("password") == MASK:
        known = old.o_auth_policy.password if old and old.o_auth_policy else None
        password = _taken("oAuthPolicy.password", "password", [known] if known else [])
        kept["oAuthPolicy"] = {**policy, "password": password}
    if isinstance(signing, Mapping) and isinstance(signing.get("secrets"), list):
        left = list(old.signing.secrets) if old and old.signing else []
        secrets = [
            _taken("signing.secrets", "secret", left) if each == MASK else each
            for each in signing["secrets"]
        ]
        kept["signing"] = {**signing, "secrets": secrets}
    if isinstance(headers, list):
        kept["headers"] = _unmasked_headers(headers, old.headers if old else ())
    return kept


def require_secrets_for_other_hosts(
    old: Subscription, new: Subscription, patch: Mapping[str, Any], *, sees_headers: bool
) -> None:
    """Raises Refused if the update would send a secret that it does not repeat to another host.

    `sees_headers`: the caller may read the secrets in fixed headers, and need not repeat them.
    """
    before = old.endpoint_address_resolver_metadata.get("hosts")
    has_other_hosts = before != new.endpoint_address_resolver_metadata.get("hosts")
    given = patch.get("endpoint")
    is_given = isinstance(given, str) and not any(each.is_masked for each in addresses_of(given))
    if has_other_hosts and not is_given and has_password_at_template(new.endpoint):
        raise Refused(
            "Subscription.endpointAddressResolverMetadata.hosts changes where a password is sent, "
            "so the password is needed; give the endpoint with its password"
        )
    places = {each.place for each in addresses_of(new.endpoint)}
    moves = has_other_hosts or not places <= {each.place for each in addresses_of(old.endpoint)}
    if sees_headers or not moves:
        return
    given_headers = [each for each in patch.get("headers") or () if isinstance(each, Mapping)]
    repeated = [(each.get("name"), each.get("value")) for each in given_headers]
    for header in new.headers:
        if is_secret_header(header.name) and (header.name, header.value) not in repeated:
            raise Refused(
                f"Subscription.headers: the update changes where {header.name} is sent, so its "
                "value is needed; give the headers with their values"
            )


def _unmasked_headers(shown: list[Any], old: Sequence[Header]) -> list[Any]:
    """The headers with masks replaced by the values of old headers of the same name, in order."""
    left: dict[str, list[str]] = {}
    for header in old:
        left.setdefault(header.name.lower(), []).append(header.value)
    unmasked = []
    for at, each in enumerate(shown):
        name = each.get("name") if isinstance(each, Mapping) else None
        if isinstance(name, str) and is_secret_header(name) and each.get("value") == MASK:
            value = _taken(f"headers[{at}].value", "value", left.get(name.lower(), []))
            each = {**each, "value": value}
        unmasked.append(each)
    return unmasked


def _taken(field: str, noun: str, left: list[str]) -> str:
    """Take the value for the next mask. Raises Refused if none is left."""
    if not left:
        raise Refused(
            f"Subscription.{field}: {MASK} means the stored {noun}, but none is stored; give the "
            f"{noun}"
        )
    return left.pop(0)
