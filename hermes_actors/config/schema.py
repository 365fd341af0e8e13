"""The settings of schemas: where they are kept."""

import typing

from msgspec import Struct, field


class SchemaConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Where schemas are kept: in the metadata log (`embedded`), or in a registry that is asked with
    Confluent's paths (`http`), whose settings the others are.
    """

    registry: typing.Literal["embedded", "http"] = "embedded"
    urls: list[str] = field(default_factory=list)
    subject_prefix: str = ""
    subject_suffix: str = ""
    user: str = ""
    password_file: str = ""
    token_file: str = ""
    ca_file: str = ""
    timeout_ms: int = 3_000
    refresh_interval_ms: int = 600_000
    expiry_ms: int = 86_400_000
