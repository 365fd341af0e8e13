"""Callers of management that the node's authenticator has identified."""

from hermes_actors.config import ManagementAuthenticationConfig
from hermes_actors.management.access.roles import Caller
from hermes_actors.model.topic import Owner
from hermes_actors.security.account import Account, Credentials, Unauthenticated
from hermes_actors.security.authenticator import Authenticator


class AccountCaller:
    """The rights of an account, by the configuration."""

    def __init__(self, account: Account, config: ManagementAuthenticationConfig) -> None:
        self.name = account.name
        self.is_admin = account.name in config.admins or (
            bool(config.admin_role) and config.admin_role in account.roles
        )
        self.is_read_only = account.name in config.read_only or (
            bool(config.read_only_role) and config.read_only_role in account.roles
        )
        self._owner_sources = config.owner_sources
        self._ids: frozenset[str] = frozenset()
        if config.owned_by != "groups":
            self._ids |= {account.name}
        if config.owned_by != "name":
            self._ids |= account.groups

    def owns(self, owner: Owner) -> bool:
        """True if the owner's id is the account's name or one of its groups, as `owned_by` says,
        and its source is among `owner_sources`.
        """
        return owner.source in self._owner_sources and owner.id in self._ids


class AccountProvider:
    """`SecurityProvider` over the node's authenticator."""

    def __init__(
        self, authenticator: Authenticator, config: ManagementAuthenticationConfig
    ) -> None:
        self._authenticator = authenticator
        self._config = config

    async def identify(self, credentials: Credentials) -> Caller | None:
        """The caller; None without credentials. Raises Unauthenticated and Unavailable."""
        account = await self._authenticator.identify(credentials)
        return None if account is None else AccountCaller(account, self._config)

    def refusal(self) -> Unauthenticated:
        """The error for a request without the credentials it needs."""
        return self._authenticator.refusal("Credentials are required here")
