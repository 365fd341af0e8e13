"""Callers and their roles, the interface of security providers, and the provider that trusts all.

A provider identifies the caller of each request by its credentials. An administrator has every
role, the owner of a topic or subscription has the owner's role for it, and everybody has ANY. A
read-only account has no role that allows changes.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Protocol

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.management.access.table import Access, Rule
from hermes_actors.metadata.catalog import Catalog
from hermes_actors.model.group import Group
from hermes_actors.model.names import TopicName
from hermes_actors.model.topic import Owner
from hermes_actors.security.account import Credentials, Unauthenticated


class Role(StrEnum):
    """The roles of a caller. The values are those of the REST API; `readOnly` is not in Hermes."""

    ANY = "any"
    ADMIN = "admin"
    READ_ONLY = "readOnly"
    TOPIC_OWNER = "topicOwner"
    SUBSCRIPTION_OWNER = "subscriptionOwner"


class Caller(Protocol):
    """The author of one request."""

    @property
    def name(self) -> str:
        """The caller's name in logs."""

    @property
    def is_admin(self) -> bool:
        """True for an administrator, who may do everything."""

    @property
    def is_read_only(self) -> bool:
        """True if the caller may read what its other rights allow, but change nothing."""

    def owns(self, owner: Owner) -> bool:
        """True if the caller may manage this owner's topics and subscriptions."""


class SecurityProvider(Protocol):
    """Identifies callers."""

    async def identify(self, credentials: Credentials) -> Caller | None:
        """The caller of a request; None without credentials.

        A trio coroutine. Raises Unauthenticated (401) for invalid credentials.
        """

    def refusal(self) -> Unauthenticated:
        """The error for a request without the credentials it needs."""


class Anonymous:
    """The caller if management has no authentication: an administrator."""

    name = "[anonymous user]"
    is_admin = True
    is_read_only = False

    def owns(self, owner: Owner) -> bool:
        """True for every owner."""
        return True


class Guest:
    """A caller without credentials while management has authentication: has no rights."""

    name = "[guest]"
    is_admin = False
    is_read_only = False

    def owns(self, owner: Owner) -> bool:
        """False for every owner."""
        return False


class OpenToAll:
    """The default provider: everybody is an administrator."""

    async def identify(self, credentials: Credentials) -> Caller | None:
        """The anonymous administrator, with any or no credentials."""
        return Anonymous()

    def refusal(self) -> Unauthenticated:
        """The error that the interface demands. Never used: this provider needs no credentials."""
        return Unauthenticated("Credentials are required here", ())


def roles_of(
    caller: Caller,
    topic_owners: Iterable[Owner] = (),
    subscription_owners: Iterable[Owner] = (),
) -> list[Role]:
    """The caller's roles for a topic and a subscription with these owners."""
    roles = [Role.ANY]
    if caller.is_read_only:
        return [*roles, Role.READ_ONLY]
    if caller.is_admin:
        roles.append(Role.ADMIN)
    if any(_manages(caller, owner) for owner in topic_owners):
        roles.append(Role.TOPIC_OWNER)
    if any(_manages(caller, owner) for owner in subscription_owners):
        roles.append(Role.SUBSCRIPTION_OWNER)
    return roles


def require_allowed(caller: Caller, rule: Rule, action: str) -> None:
    """Raises Refused (403 OTHER) if the rule is for administrators only and the caller is not one,
    or if a read-only account would change something.
    """
    if rule.changes and caller.is_read_only:
        raise _forbidden(caller, action, "an account that is not read-only")
    if rule.access is Access.ADMIN and not caller.is_admin:
        raise _forbidden(caller, action, "an administrator")


def require_owner(caller: Caller, action: str, *owners: Owner) -> None:
    """Raises Refused (403 OTHER) unless the caller is an administrator or one of these owners."""
    if not any(_manages(caller, owner) for owner in owners) and not caller.is_admin:
        raise _forbidden(caller, action, "an owner or an administrator")


def sees_secrets(caller: Caller, *owners: Owner) -> bool:
    """True if the caller has been identified as an administrator or one of these owners.

    Without authentication nobody has been identified. A read-only account does not need them.
    """
    if isinstance(caller, Anonymous) or caller.is_read_only:
        return False
    return caller.is_admin or any(caller.owns(owner) for owner in owners)


def _manages(caller: Caller, owner: Owner) -> bool:
    return caller.is_admin or caller.owns(owner)


def _forbidden(caller: Caller, action: str, wanted: str) -> Refused:
    return Refused(
        f"{caller.name} may not {action}: only {wanted} may", ErrorCode.OTHER, status=403
    )


def group_named(catalog: Catalog, name: str) -> Group:
    """The group as it is now; a group without an owner if it does not exist."""
    live = catalog.groups.get(name)
    return Group(name) if live is None else live.group


def owners_of(catalog: Catalog, topic: TopicName, *owners: Owner) -> tuple[Owner, ...]:
    """These owners, and the owner of the topic's group if it has one."""
    owner = group_named(catalog, topic.group).owner
    return owners if owner is None else (*owners, owner)
