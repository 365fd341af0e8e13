"""Callers and their roles: the seam for a security provider, and the one that trusts all.

A provider decides for each request from its credentials. Roles follow from the caller: an
administrator has every role, an owner of an object has the owner's role for it, and ANY is
everybody's.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Protocol

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.metadata.catalog import Catalog
from hermes_actors.model.group import Group
from hermes_actors.model.names import TopicName
from hermes_actors.model.topic import Owner
from hermes_actors.security.account import Credentials, Unauthenticated


class Role(StrEnum):
    """The roles that a route may ask of its caller; the values are the wire's."""

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

    async def identify(self, credentials: Credentials) -> Caller | None:
        """The caller behind a request's credentials; None when it shows none.

        A trio coroutine. Raises Unauthenticated (401) for credentials that do not hold.
        """

    def refusal(self) -> Unauthenticated:
        """The error for a request that needs credentials and shows none."""


class Anonymous:
    """The caller when nobody asks for credentials: an administrator."""

    name = "[anonymous user]"
    is_admin = True

    def owns(self, owner: Owner) -> bool:
        """True: everything."""
        return True


class Guest:
    """The caller who shows no credentials where they are asked for: he may do nothing."""

    name = "[guest]"
    is_admin = False

    def owns(self, owner: Owner) -> bool:
        """False: nothing."""
        return False


class OpenToAll:
    """The default provider: everyone is administrator."""

    async def identify(self, credentials: Credentials) -> Caller | None:
        """The anonymous administrator, whatever is shown."""
        return Anonymous()

    def refusal(self) -> Unauthenticated:
        """Return the error as every provider does; it is never needed, for nobody is asked."""
        return Unauthenticated("Credentials are needed here", ())


def roles_of(
    caller: Caller,
    topic_owners: Iterable[Owner] = (),
    subscription_owners: Iterable[Owner] = (),
) -> list[Role]:
    """The caller's roles, for what these own where some are given."""
    roles = [Role.ANY]
    if caller.is_admin:
        roles.append(Role.ADMIN)
    if any(_manages(caller, owner) for owner in topic_owners):
        roles.append(Role.TOPIC_OWNER)
    if any(_manages(caller, owner) for owner in subscription_owners):
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


def sees_secrets(caller: Caller, *owners: Owner) -> bool:
    """True for an administrator or an owner of one of these, who has said who he is.

    Where nobody is asked, nobody is known to be either.
    """
    if isinstance(caller, Anonymous):
        return False
    return caller.is_admin or any(caller.owns(owner) for owner in owners)


def _manages(caller: Caller, owner: Owner) -> bool:
    return caller.is_admin or caller.owns(owner)


def _forbidden(caller: Caller, action: str, wanted: str) -> Refused:
    return Refused(
        f"{caller.name} may not {action}: only {wanted} may", ErrorCode.OTHER, status=403
    )


def group_named(catalog: Catalog, name: str) -> Group:
    """The group as it is now; one without an owner when it is not there."""
    live = catalog.groups.get(name)
    return Group(name) if live is None else live.group


def owners_of(catalog: Catalog, topic: TopicName, *owners: Owner) -> tuple[Owner, ...]:
    """Return these owners, and the one of the topic's group if it has one."""
    owner = group_named(catalog, topic.group).owner
    return owners if owner is None else (*owners, owner)
