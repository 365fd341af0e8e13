"""The settings of security: how callers are known, and where they must show who they are."""

import typing

from msgspec import Struct, field

from hermes_actors.model.redaction import redacted, without_user_info


class PublishingAuthenticationConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether publishers are asked who they are. The modes are Hermes'."""

    enabled: bool = False
    mode: typing.Literal["constraint_driven", "pro_active"] = "constraint_driven"


class ManagementAuthenticationConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether those who administer are asked who they are, and what their accounts are there."""

    enabled: bool = False
    reads: typing.Literal["open", "authenticated"] = "open"
    admins: list[str] = field(default_factory=list)
    admin_role: str = "ADMIN"
    owned_by: typing.Literal["name_and_groups", "name", "groups"] = "name_and_groups"
    owner_sources: list[str] = field(default_factory=lambda: ["Plaintext"])


class JwtConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Bearer tokens. Off while neither `jwks_file` nor `jwks_url` is set."""

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
        # A query may hold a key too.
        return redacted(self, jwks_url=repr(without_user_info(self.jwks_url).partition("?")[0]))


class CertificateConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Client certificates as accounts."""

    enabled: bool = False
    name_from: typing.Literal["common_name", "dns", "uri", "email"] = "common_name"
    roles: list[str] = field(default_factory=list)


class SecurityConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The mechanisms, for publishing and for management alike. Basic is off without a file."""

    realm: str = "hermes"
    users_file: str = ""
    file_check_interval_ms: int = 2_000
    jwt: JwtConfig = field(default_factory=JwtConfig)
    certificates: CertificateConfig = field(default_factory=CertificateConfig)
    plugins: list[str] = field(default_factory=list)

    @property
    def mechanism_fields(self) -> list[str]:
        """The fields that turn mechanisms on here, as they are called in a file."""
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
        """True when there is some way to show who one is without a client certificate."""
        return bool(self.users_file or self.jwt.jwks_file or self.jwt.jwks_url or self.plugins)
