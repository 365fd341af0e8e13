"""Creates the mechanisms of a configuration, and reads their files."""

import ssl
from typing import Any

from msgspec import Struct

from hermes_actors.config.plugins import load_plugin
from hermes_actors.config.security import JwtConfig, SecurityConfig
from hermes_actors.errors import StartupError
from hermes_actors.runtime.clock import Clock, IdSource
from hermes_actors.runtime.workers import WorkerPool
from hermes_actors.security.account import Mechanism
from hermes_actors.security.authenticator import Authenticator
from hermes_actors.security.basic import BasicMechanism
from hermes_actors.security.bearer import BearerMechanism
from hermes_actors.security.certificates import CertificateMechanism
from hermes_actors.security.keyset import NO_KEYS, KeySet, parse_key_set
from hermes_actors.security.passwords import PasswordChecks
from hermes_actors.security.tokens import TokenRules
from hermes_actors.security.users import NO_USERS, parse_users
from hermes_actors.security.watched import Watched, watched_files, watched_url

_MECHANISM_PARTS = ("identify", "run", "challenge")


class PluginContext(Struct, frozen=True):
    """The parts of a node that a plug-in may use: the configured realm, a clock, random ids."""

    realm: str
    clock: Clock
    ids: IdSource


async def open_authenticator(
    config: SecurityConfig, clock: Clock, ids: IdSource, pool: WorkerPool
) -> Authenticator:
    """The configured mechanisms, in the order Basic, Bearer, plug-ins, certificates.

    A trio coroutine. The caller must then call `Authenticator.start`. Raises StartupError if a file
    cannot be read or a plug-in cannot be loaded.
    """
    mechanisms: list[Mechanism] = []
    watched: list[Watched[Any]] = []
    interval_s = config.file_check_interval_ms / 1_000
    users = None
    if config.users_file:
        field = "security.users_file"
        users = watched_files(field, [config.users_file], parse_users, NO_USERS, clock, interval_s)
        await users.load()
        watched.append(users)
        checks = PasswordChecks(_secret(ids), pool)
        mechanisms.append(BasicMechanism(config.realm, users, checks))
    if config.jwt.jwks_file or config.jwt.jwks_url:
        keys = await _open_keys(config.jwt, interval_s, clock)
        watched.append(keys)
        rules = _rules(config.jwt)
        mechanisms.append(BearerMechanism(config.realm, keys, rules, clock, _secret(ids)))
    context = PluginContext(config.realm, clock, ids)
    mechanisms += [_plugin(name, context) for name in config.plugins]
    if config.certificates.enabled:
        mechanisms.append(
            CertificateMechanism(
                config.certificates.name_from,
                frozenset(config.certificates.roles),
                lambda: NO_USERS if users is None else users.value,
            )
        )
    return Authenticator(mechanisms, watched=watched)


async def _open_keys(config: JwtConfig, interval_s: float, clock: Clock) -> Watched[KeySet]:
    if config.jwks_file:
        field = "security.jwt.jwks_file"
        keys = watched_files(field, [config.jwks_file], parse_key_set, NO_KEYS, clock, interval_s)
        await keys.load()
        return keys
    return watched_url(
        "security.jwt.jwks_url",
        config.jwks_url,
        parse_key_set,
        NO_KEYS,
        clock,
        config.jwks_refresh_interval_ms / 1_000,
        context=_trusting(config.jwks_ca_file),
    )


def _trusting(ca_file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise StartupError(
            f"security.jwt.jwks_ca_file: {ca_file} cannot be used: {error}; it is a PEM file of "
            "certificates"
        ) from error


def _rules(config: JwtConfig) -> TokenRules:
    return TokenRules(
        algorithms=frozenset(config.algorithms),
        issuer=config.issuer,
        audiences=frozenset(config.audiences),
        leeway_s=config.leeway_ms / 1_000,
        name_claim=config.name_claim,
        roles_claim=config.roles_claim,
        groups_claim=config.groups_claim,
        roles=frozenset(config.roles),
    )


def _secret(ids: IdSource) -> bytes:
    """A random secret of this process. Two ids have 244 random bits."""
    return (ids.message_id() + ids.message_id()).encode()


def _plugin(name: str, context: PluginContext) -> Mechanism:
    mechanism: Mechanism = load_plugin(
        name, context, field="security.plugins", noun="mechanism", parts=_MECHANISM_PARTS
    )
    return mechanism
