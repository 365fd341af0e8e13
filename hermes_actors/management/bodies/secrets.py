"""Secrets of a subscription: shown as a mask, kept where the mask comes back, and never led
elsewhere by who cannot read them.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from hermes_actors.errors import Refused
from hermes_actors.management.bodies.endpoint import (
    MASKED_PASSWORD,
    has_password_at_template,
    mask_endpoint,
    places_of,
    require_no_mask,
    unmask_endpoint,
)
from hermes_actors.model.redaction import MASK, is_secret_header
from hermes_actors.model.subscription import Header, SigningPolicy, Subscription

_METADATA = "endpointAddressResolverMetadata"


def masked(subscription: Subscription, *, shows_headers: bool = False) -> Subscription:
    """The subscription with masks for its secrets; fixed headers that may hold one are left as they
    are where `shows_headers`.
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


def with_secrets_kept(old: Subscription, patch: Mapping[str, Any]) -> dict[str, Any]:
    """The patch without the masks that an answer showed: sent back, they mean "as it is".

    Raises Refused for a mask that stands for nothing.
    """
    kept = dict(patch)
    if isinstance(kept.get("endpoint"), str):
        kept["endpoint"] = unmask_endpoint(kept["endpoint"], old.endpoint)
    policy = kept.get("oAuthPolicy")
    has_password = old.o_auth_policy is not None and old.o_auth_policy.password is not None
    if has_password and isinstance(policy, Mapping) and policy.get("password") == MASK:
        kept["oAuthPolicy"] = {k: v for k, v in policy.items() if k != "password"}
    signing = kept.get("signing")
    if isinstance(signing, Mapping) and isinstance(signing.get("secrets"), list):
        secrets = _unmasked_secrets(signing["secrets"], old.signing)
        kept["signing"] = {**signing, "secrets": secrets}
    if isinstance(kept.get("headers"), list):
        kept["headers"] = _unmasked_headers(kept["headers"], old.headers)
    return kept


def require_no_new_mask(new: Subscription) -> None:
    """Raises Refused where a mask would be stored as a secret."""
    policy = new.o_auth_policy
    if policy is not None and policy.password == MASK:
        raise Refused(
            f"Subscription.oAuthPolicy.password: {MASK} stands for a password "
            "that is there already, and there is none; give the password"
        )
    for at, each in enumerate(new.headers):
        if _is_masked(each.name, each.value):
            raise _no_such_header(at, each.name)


def require_no_mask_at_all(new: Subscription) -> None:
    """Raises Refused for a new subscription with a mask where a secret should be."""
    require_no_mask(new.endpoint)
    require_no_new_mask(new)


def require_secrets_for_other_hosts(
    old: Subscription, new: Subscription, patch: Mapping[str, Any], *, sees_headers: bool
) -> None:
    """Raises Refused where a secret that is only kept would be sent to other hosts than before.

    `sees_headers`: who changes it may read its fixed headers, and so need not repeat them.
    """
    before = old.endpoint_address_resolver_metadata.get("hosts")
    has_other_hosts = before != new.endpoint_address_resolver_metadata.get("hosts")
    given = patch.get("endpoint")
    is_given = isinstance(given, str) and MASKED_PASSWORD not in given
    if has_other_hosts and not is_given and has_password_at_template(new.endpoint):
        raise Refused(
            f"Subscription.{_METADATA}.hosts: who changes where a password is "
            "sent has to know it; give the endpoint with its password"
        )
    if sees_headers or not (
        has_other_hosts or not places_of(new.endpoint) <= places_of(old.endpoint)
    ):
        return
    repeated = [
        (each.get("name"), each.get("value"))
        for each in patch.get("headers") or ()
        if isinstance(each, Mapping)
    ]
    for each in new.headers:
        if is_secret_header(each.name) and (each.name, each.value) not in repeated:
            raise Refused(
                f"Subscription.headers: who changes where {each.name} is sent has to know its "
                "value; give the headers with their values"
            )


def _unmasked_secrets(shown: list[Any], old: SigningPolicy | None) -> list[Any]:
    """The list with the old secrets, in their order, where masks stand for them."""
    left = [] if old is None else list(old.secrets)
    unmasked = []
    for each in shown:
        is_mask = each == MASK
        if is_mask and not left:
            raise Refused(
                f"Subscription.signing.secrets: {MASK} stands for a secret that "
                "is there already, and there are not as many; give the secret"
            )
        unmasked.append(left.pop(0) if is_mask else each)
    return unmasked


def _unmasked_headers(shown: list[Any], old: list[Header]) -> list[Any]:
    """The list with the old values of headers of the same names, in their order."""
    left = list(old)
    unmasked: list[Any] = []
    for at, each in enumerate(shown):
        name = each.get("name") if isinstance(each, Mapping) else None
        if not isinstance(name, str) or not _is_masked(name, each.get("value")):
            unmasked.append(each)
            continue
        known = next((one for one in left if one.name.lower() == name.lower()), None)
        if known is None:
            raise _no_such_header(at, name)
        left.remove(known)
        unmasked.append({**each, "value": known.value})
    return unmasked


def _is_masked(name: str, value: object) -> bool:
    return value == MASK and is_secret_header(name)


def _no_such_header(at: int, name: str) -> Refused:
    return Refused(
        f"Subscription.headers[{at}].value: {MASK} stands for a value of {name} that is there "
        "already, and there is none; give the value"
    )
