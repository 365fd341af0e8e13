"""Shows values that hold secrets without the secrets, in logs, crash reports and assertions."""

import re
from typing import Any

import msgspec
from msgspec import Struct

HIDDEN = "***"
MASK = "******"
"""Replaces a secret in the management API; if a client sends it back, the secret is kept."""
# Up to the last "@": a password may contain one, or a slash, unescaped.
_USER_INFO = re.compile(r"//\S*@")
_USER_INFO_WITHIN = re.compile(r"//.*@")
_QUERY = re.compile(r"(://[^\s?]*)\?\S*")
_CREDENTIALS = re.compile(r"\b(basic|bearer|digest)\s+\S+", re.IGNORECASE)
# Words in names of headers that may hold a secret; too many matches are better than too few.
_SECRET_HEADER = re.compile(
    r"authorization|authentication|cookie|credential|key|passw|passphrase|pwd|secret|session"
    r"|signature|token|jwt|(?:^|[-_.])(?:auth|pass|sid)(?:$|[-_.])",
    re.IGNORECASE,
)

# In metadata bodies: secrets of OAuth and signing, and a map that only a plug-in understands.
_SECRET_FIELDS = frozenset(
    {"password", "clientSecret", "secrets", "memoryKey", "endpointAddressResolverMetadata"}
)


def is_secret_header(name: str) -> bool:
    """True if a request header may hold a secret, by its name."""
    return _SECRET_HEADER.search(name) is not None


def without_user_info(url: str) -> str:
    """Remove user and password from a URL, or a text that resembles one."""
    return _USER_INFO.sub(f"//{HIDDEN}@", url)


def without_secrets(text: str, characters_max: int = 300) -> str:
    """Make a foreign text safe for people: shortened, on one line, without user and password of a
    URL, without its query (which may hold a token), and without credentials of an Authorization
    header.
    """
    text = " ".join(text[: 4 * characters_max].split())
    # A password may contain an unescaped space.
    text = _USER_INFO_WITHIN.sub(f"//{HIDDEN}@", text)
    text = _QUERY.sub(rf"\1?{HIDDEN}", text)
    return _CREDENTIALS.sub(rf"\1 {HIDDEN}", text)[:characters_max]


def without_secret_fields(value: Any) -> Any:
    """Return the JSON value with masks for its secrets: in fields, fixed headers and URLs."""
    if isinstance(value, dict):
        has_secret = is_secret_header(str(value.get("name")))
        return {
            name: MASK
            if each and (name in _SECRET_FIELDS or (has_secret and name == "value"))
            else without_secret_fields(each)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [without_secret_fields(each) for each in value]
    if isinstance(value, str):
        return _QUERY.sub(rf"\1?{HIDDEN}", without_user_info(value))
    return value


def hidden_bytes(content: bytes | None) -> str:
    """Show only the length."""
    return "None" if content is None else f"<{len(content)} bytes>"


def redacted(value: Struct, /, **instead: str) -> str:
    """The struct's repr, with these texts in place of the fields of those names."""
    shown = [
        f"{name}={instead[name] if name in instead else repr(getattr(value, name))}"
        for name in (each.name for each in msgspec.structs.fields(value))
    ]
    return f"{type(value).__name__}({', '.join(shown)})"
