"""How a value that holds a secret looks in a log, a crash report or an assertion: without it."""

import re
from typing import Any

import msgspec
from msgspec import Struct

HIDDEN = "***"
MASK = "******"
"""Shown in place of a secret by the management API; sent back, it means the one that is there."""
# To the last "@": a password may hold one, or a slash, that nobody has escaped.
_USER_INFO = re.compile(r"//\S*@")
_USER_INFO_WITHIN = re.compile(r"//.*@")
_QUERY = re.compile(r"(://[^\s?]*)\?\S*")
_CREDENTIALS = re.compile(r"\b(basic|bearer|digest)\s+\S+", re.IGNORECASE)
# Words by which headers that hold a secret are called: too many are better than too few.
_SECRET_HEADER = re.compile(
    r"authorization|authentication|cookie|credential|key|passw|passphrase|pwd|secret|session"
    r"|signature|token|jwt|(?:^|[-_.])(?:auth|pass|sid)(?:$|[-_.])",
    re.IGNORECASE,
)

# Of bodies of the metadata: of OAuth, of signing, and a map of which only a plug-in knows more.
_SECRET_FIELDS = frozenset(
    {"password", "clientSecret", "secrets", "endpointAddressResolverMetadata"}
)


def is_secret_header(name: str) -> bool:
    """True for a request header whose name says that it may hold a secret."""
    return _SECRET_HEADER.search(name) is not None


def without_user_info(url: str) -> str:
    """The URL, or what resembles one, without user and password."""
    return _USER_INFO.sub(f"//{HIDDEN}@", url)


def without_secrets(text: str, characters_max: int = 300) -> str:
    """Somebody else's text for people, shortened and on one line: no user and password of a URL, no
    query, which may hold a token, and no credentials of an Authorization header.
    """
    text = " ".join(text[: 4 * characters_max].split())
    # A password may hold a space that nobody has escaped.
    text = _USER_INFO_WITHIN.sub(f"//{HIDDEN}@", text)
    text = _QUERY.sub(rf"\1?{HIDDEN}", text)
    return _CREDENTIALS.sub(rf"\1 {HIDDEN}", text)[:characters_max]


def without_secret_fields(value: Any) -> Any:
    """What JSON holds, with masks for secrets: in their fields, in fixed headers, in URLs."""
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
    """How long it is, and no more."""
    return "None" if content is None else f"<{len(content)} bytes>"


def redacted(value: Struct, /, **instead: str) -> str:
    """The struct's repr, with these texts in place of its fields of those names."""
    shown = [
        f"{name}={instead[name] if name in instead else repr(getattr(value, name))}"
        for name in (each.name for each in msgspec.structs.fields(value))
    ]
    return f"{type(value).__name__}({', '.join(shown)})"
