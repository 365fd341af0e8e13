"""How a value that holds a secret looks in a log, a crash report or an assertion: without it."""

import re

import msgspec
from msgspec import Struct

HIDDEN = "***"
# To the last "@": a password may hold one, or a slash, that nobody has escaped.
_USER_INFO = re.compile(r"//\S*@")


def without_user_info(url: str) -> str:
    """The URL, or what resembles one, without user and password."""
    return _USER_INFO.sub(f"//{HIDDEN}@", url)


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
