"""Checks the settings of schemas."""

import re
from urllib.parse import urlsplit

from hermes_actors.config.requiring import require
from hermes_actors.config.schema import SchemaConfig
from hermes_actors.model.endpoints import is_loopback

_AFFIX = re.compile(r"[a-zA-Z0-9_.:-]*")
_AFFIX_MAX = 100


def check_schema(schema: SchemaConfig) -> None:
    """Check that the schema registry can be asked, without sending credentials in plain text.

    Raises ConfigError.
    """
    is_asked = schema.registry == "http"
    require(
        is_asked == bool(schema.urls),
        "schema.urls: goes together with schema.registry http; name the registry there, for "
        "example https://registry.example.com/apis/ccompat/v7, or leave it empty for embedded",
    )
    has_credentials = bool(schema.user or schema.token_file)
    for url in schema.urls:
        # The error does not quote the URL: it may contain a password.
        require(
            _is_plain_url(url),
            "schema.urls: an entry is not a URL such as https://registry.example.com, without "
            "user, query and fragment; credentials are schema.user and password_file, or "
            "token_file",
        )
        parts = urlsplit(url)
        require(
            not has_credentials or parts.scheme == "https" or is_loopback(parts.hostname or ""),
            "schema.urls: with http the credentials could be read on the network; use https",
        )
    require(
        bool(schema.user) == bool(schema.password_file),
        "schema.user: goes together with schema.password_file; set both or neither",
    )
    require(
        not (schema.user and schema.token_file),
        "schema.token_file: cannot be combined with schema.user; keep one of them",
    )
    for name, affix in (("prefix", schema.subject_prefix), ("suffix", schema.subject_suffix)):
        require(
            _AFFIX.fullmatch(affix) is not None and len(affix) <= _AFFIX_MAX,
            f"schema.subject_{name}: is not made of letters, digits, '_', '.', ':' and '-'; "
            "Kafka's tools use the suffix -value",
        )
    require(
        schema.refresh_interval_ms <= schema.expiry_ms,
        f"schema.refresh_interval_ms: {schema.refresh_interval_ms} is above schema.expiry_ms "
        f"({schema.expiry_ms}), so that what is known would be forgotten in between; lower it",
    )


def _is_plain_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        is_whole = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        return False
    has_more = url.query or url.fragment or "@" in url.netloc
    return is_whole and not has_more and text.isprintable() and " " not in text
