"""Checks the settings of accounts: an authentication that nobody could pass is refused.

Each error names the field, the reason and a valid value.
"""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from hermes_actors.config.checks_endpoints import HOST
from hermes_actors.config.requiring import require
from hermes_actors.config.security import JwtConfig
from hermes_actors.config.tree import Config
from hermes_actors.model.endpoints import is_loopback

_ALGORITHMS = frozenset(
    f"{kind}{bits}" for kind in ("RS", "PS", "ES", "HS") for bits in (256, 384, 512)
) | {"EdDSA"}
_PLUGIN = re.compile(r"[\w.]+:\w+")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s]+", re.IGNORECASE)
_CLUSTER = re.compile(r"[a-zA-Z0-9_.-]+=[^=/\s]+")
_SUBSCRIBER = re.compile(r"[^:\s]+:\S+( [a-z][a-z0-9+.-]*)+")


def check_security(config: Config) -> None:
    """Check authentication, TLS client certificates and privileged subscribers. Raises
    ConfigError.
    """
    security = config.security
    for section, is_enabled, tls in (
        ("frontend", config.frontend.authentication.enabled, config.frontend.tls),
        ("management", config.management.authentication.enabled, config.management.tls.listener),
    ):
        asks = security.certificates.enabled and tls.client_auth != "not_requested"
        require(
            not is_enabled or asks or security.has_mechanism_in_headers,
            f"{section}.authentication.enabled: nobody could log in; set "
            "security.users_file, security.jwt.jwks_file or jwks_url, or "
            f"security.certificates.enabled and {section}.tls.client_auth",
        )
    management = config.management.authentication
    require(
        not management.enabled or bool(any(management.admins) or management.admin_role),
        "management.authentication.admins: is empty, and so is admin_role, so that nobody could "
        "administer; name an account, or a role",
    )
    realm = security.realm
    require(
        '"' not in realm and "\\" not in realm and realm.isprintable() and realm.isascii(),
        "security.realm: is sent between quotes in a header; write it in ASCII without quotes or "
        "backslashes",
    )
    for plugin in security.plugins:
        require(
            _PLUGIN.fullmatch(plugin) is not None,
            f"security.plugins: '{plugin}' is not module:function",
        )
    _check_owners(config)
    names = config.management.cluster_names
    require(
        all(map(_CLUSTER.fullmatch, names))
        and len({text.partition("=")[2] for text in names}) == len(names),
        f"management.cluster_names: {names} is not a list of datacentre=name with different "
        "names; write for example dc1=primary-dc",
    )
    _check_jwt(security.jwt)
    _check_tls(config)
    for origin in config.management.trusted_origins:
        require(
            origin == "*" or _ORIGIN.fullmatch(origin) is not None,
            f"management.trusted_origins: '{origin}' is not an origin; write scheme, host and, "
            "where it is not the usual one, the port: https://console.example.com, or * for every "
            "page",
        )
    for host in config.management.allowed_hosts:
        require(
            host == "*" or HOST.fullmatch(host) is not None,
            f"management.allowed_hosts: '{host}' is not a host; write hermes.example.com or "
            "*.example.com, without a port, or * for any",
        )
    for text in config.management.subscribers_with_access_to_any_topic:
        require(
            _SUBSCRIBER.fullmatch(text) is not None,
            f"management.subscribers_with_access_to_any_topic: '{text}' is not an owner and its "
            "protocols; write for example 'Plaintext:crawler http https'",
        )


def exposures(config: Config) -> Iterator[str]:
    """Return a warning for each plain listener that other machines can reach although
    authentication and TLS are on.
    """
    for section, listener in (("frontend", config.frontend), ("management", config.management)):
        tls = listener.tls
        asks = section in config.roles and listener.authentication.enabled
        if asks and tls.certificate_file and not (tls.only or is_loopback(listener.host)):
            yield (
                f"{section}.port: clients may send passwords and tokens in plain text to "
                f"{listener.host} port {listener.port}; set {section}.tls.only to true, or block "
                "that port for other machines"
            )


def _check_owners(config: Config) -> None:
    sources = config.management.owner_sources
    require(
        bool(sources) and all(sources),
        "management.owner_sources: is empty or holds an empty name, so that nothing could have an "
        "owner; the default is Plaintext",
    )
    for source in config.management.authentication.owner_sources:
        require(
            source in sources,
            f"management.authentication.owner_sources: '{source}' is not among "
            f"management.owner_sources ({', '.join(sources)}); add it there too",
        )


def _check_jwt(jwt: JwtConfig) -> None:
    if not jwt.jwks_file and not jwt.jwks_url:
        return
    require(
        not (jwt.jwks_file and jwt.jwks_url),
        "security.jwt.jwks_url: cannot be combined with security.jwt.jwks_file; keep one of them",
    )
    require(
        bool(jwt.issuer),
        "security.jwt.issuer: is empty; name what your identity provider puts into iss",
    )
    require(
        bool(jwt.audiences) and all(jwt.audiences),
        "security.jwt.audiences: is empty, so tokens for other applications would be accepted; "
        "name what your identity provider puts into aud for this cluster",
    )
    require(
        bool(jwt.algorithms), "security.jwt.algorithms: is empty; the default is RS256 and so on"
    )
    for algorithm in jwt.algorithms:
        require(
            algorithm in _ALGORITHMS,
            f"security.jwt.algorithms: '{algorithm}' is not one of "
            f"{', '.join(sorted(_ALGORITHMS))}",
        )
    require(
        len({each.startswith("HS") for each in jwt.algorithms}) == 1,
        "security.jwt.algorithms: mixes HS… (a shared secret) with others (public keys); who holds "
        "a public key must not be able to sign, so keep one kind",
    )
    if jwt.jwks_url:
        # The error does not quote the URL: it may contain a password.
        require(
            _is_url(jwt.jwks_url),
            "security.jwt.jwks_url: is not a URL like https://id.example.com/jwks",
        )
        url = urlsplit(jwt.jwks_url)
        require(
            url.scheme == "https" or is_loopback(url.hostname or ""),
            "security.jwt.jwks_url: with http the keys could be replaced on the network; use "
            "https, or fetch the keys yourself and set security.jwt.jwks_file",
        )


def _check_tls(config: Config) -> None:
    listeners = {
        "frontend": config.frontend.tls,
        "management": config.management.tls.listener,
        "grpc": config.grpc.tls.listener,
    }
    for section, tls in listeners.items():
        asks = tls.client_auth != "not_requested"
        require(
            not asks or bool(tls.certificate_file),
            f"{section}.tls.client_auth: {tls.client_auth} needs the TLS listener; set "
            f"{section}.tls.certificate_file and key_file",
        )
        require(
            asks == bool(tls.client_ca_file),
            f"{section}.tls.client_ca_file: goes together with {section}.tls.client_auth "
            "requested or required; set both or neither",
        )
    require(
        not config.security.certificates.enabled
        or any(tls.client_auth != "not_requested" for tls in listeners.values()),
        "security.certificates.enabled: no listener asks for certificates; set "
        "frontend.tls.client_auth to requested or required, and client_ca_file",
    )


def _is_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        return False
