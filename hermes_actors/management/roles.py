"""Who calls, and what he may do: the seam for a security provider, and the one that trusts all.

A provider decides for each request from its headers. Roles follow from the caller: an
administrator has every role, an owner of an object has the owner's role for it, and ANY is
everybody's.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.model.subscription import Subscription
from hermes_actors.model.topic import Owner, Topic


class Role(StrEnum):
    """What a route may ask of its caller; the values are the wire's."""

    ANY = "any"
    ADMIN = "admin"
    TOPIC_OWNER = "topicOwner"
    SUBSCRIPTION_OWNER = "subscriptionOwner"


class Caller(Protocol):
    """One request's author."""

    @property
    def name(self) -> str:
        """How the caller is called in logs."""

    @property
    def is_admin(self) -> bool:
        """True for who may do everything."""

    def owns(self, owner: Owner) -> bool:
        """True when the caller may manage what this owner owns."""


class SecurityProvider(Protocol):
    """Tells who calls."""

    async def identify(self, headers: Mapping[str, str]) -> Caller:
        """The caller behind a request's headers (names in lower case).

        A trio coroutine. Raises Refused (401 or 403) for credentials that do not hold.
        """


class Anonymous:
    """The caller when nobody asks for credentials: an administrator."""

    name = "[anonymous user]"
    is_admin = True

    def owns(self, owner: Owner) -> bool:
        """True: everything."""
        return True


class OpenToAll:
    """The default provider: everyone is administrator."""

    async def identify(self, headers: Mapping[str, str]) -> Caller:
        """The anonymous administrator, whatever the headers say."""
        return Anonymous()


def roles_of(
    caller: Caller, topic: Topic | None = None, subscription: Subscription | None = None
) -> list[Role]:
    """The caller's roles, for these objects where some are given."""
    roles = [Role.ANY]
    if caller.is_admin:
        roles.append(Role.ADMIN)
    if topic is not None and _manages(caller, topic.owner):
        roles.append(Role.TOPIC_OWNER)
    if subscription is not None and _manages(caller, subscription.owner):
        roles.append(Role.SUBSCRIPTION_OWNER)
    return roles


def require_admin(caller: Caller, action: str) -> None:
    """Raises Refused (403 OTHER) unless the caller is an administrator."""
    if not caller.is_admin:
        raise _forbidden(caller, action, "an administrator")


def require_owner(caller: Caller, action: str, *owners: Owner) -> None:
    """Raises Refused (403 OTHER) unless the caller is an administrator or owns one of these."""
    if not any(_manages(caller, owner) for owner in owners) and not caller.is_admin:
        raise _forbidden(caller, action, "an owner or an administrator")


def _manages(caller: Caller, owner: Owner) -> bool:
    return caller.is_admin or caller.owns(owner)


def _forbidden(caller: Caller, action: str, wanted: str) -> Refused:
    return Refused(
        f"{caller.name} may not {action}: only {wanted} may", ErrorCode.OTHER, status=403
    )
