"""The settings of schemas."""

import typing

from msgspec import Struct, field


class SchemaConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Where schemas are kept: in the metadata log (`embedded`), or in an external registry with
    Confluent's API (`http`), to which the other fields belong.
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
