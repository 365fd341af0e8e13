"""The settings of security: authentication mechanisms, and where authentication is required."""

import typing

from msgspec import Struct, field

from hermes_actors.model.redaction import redacted, without_user_info


class PublishingAuthenticationConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether publishers must authenticate. The modes are Hermes'."""

    enabled: bool = False
    mode: typing.Literal["constraint_driven", "pro_active"] = "constraint_driven"


class ManagementAuthenticationConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether users of the management API must authenticate, and which accounts are administrators,
    owners and read-only.
    """

    enabled: bool = False
    reads: typing.Literal["open", "authenticated"] = "open"
    admins: list[str] = field(default_factory=list)
    admin_role: str = "ADMIN"
    read_only: list[str] = field(default_factory=list)
    read_only_role: str = "READ_ONLY"
    owned_by: typing.Literal["name_and_groups", "name", "groups"] = "name_and_groups"
    owner_sources: list[str] = field(default_factory=lambda: ["Plaintext"])


class JwtConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Bearer tokens. Off if neither `jwks_file` nor `jwks_url` is set."""

    jwks_file: str = ""
    jwks_url: str = ""
    jwks_ca_file: str = ""
    jwks_refresh_interval_ms: int = 300_000
    algorithms: list[str] = field(default_factory=lambda: ["RS256", "PS256", "ES256", "EdDSA"])
    issuer: str = ""
    audiences: list[str] = field(default_factory=list)
    leeway_ms: int = 30_000
    name_claim: str = "sub"
    roles_claim: str = "roles"
    groups_claim: str = "groups"
    roles: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        # A query may contain a key too.
        return redacted(self, jwks_url=repr(without_user_info(self.jwks_url).partition("?")[0]))


class CertificateConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Client certificates as accounts."""

    enabled: bool = False
    name_from: typing.Literal["common_name", "dns", "uri", "email"] = "common_name"
    roles: list[str] = field(default_factory=list)


class SecurityConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The authentication mechanisms, shared by publishing and management. Basic is off without
    `users_file`.
    """

    realm: str = "hermes"
    users_file: str = ""
    file_check_interval_ms: int = 2_000
    jwt: JwtConfig = field(default_factory=JwtConfig)
    certificates: CertificateConfig = field(default_factory=CertificateConfig)
    plugins: list[str] = field(default_factory=list)

    @property
    def mechanism_fields(self) -> list[str]:
        """The names of the fields that turn on a mechanism in this configuration."""
        is_on = {
            "security.users_file": self.users_file,
            "security.jwt.jwks_file": self.jwt.jwks_file,
            "security.jwt.jwks_url": self.jwt.jwks_url,
            "security.certificates.enabled": self.certificates.enabled,
            "security.plugins": self.plugins,
        }
        return [name for name, value in is_on.items() if value]

    @property
    def has_mechanism_in_headers(self) -> bool:
        """True if callers can authenticate without a client certificate."""
        return bool(self.users_file or self.jwt.jwks_file or self.jwt.jwks_url or self.plugins)
