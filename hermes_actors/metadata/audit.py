"""Who changed what: a header of the command's record, and a line in the log.

The fold ignores the header. Since folding the log also gives the value before each change, the
metadata log is a complete audit trail.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import msgspec
from msgspec import Struct

from hermes_actors.model.redaction import hidden_bytes, without_secret_fields

AUTHOR_HEADER = "hermes-author"
"""The header of a command's record that holds its author, as JSON."""

BROKER = "[broker]"
"""The author of changes that the broker makes by itself."""

_SHOWN_BYTES_MAX = 16_384
_logger = logging.getLogger(__name__)


class Author(Struct, frozen=True, omit_defaults=True):
    """Who makes a change, from which address (for the broker: which node), and why, if stated."""

    by: str
    address: str = ""
    reason: str = ""


_author: ContextVar[Author | None] = ContextVar("author", default=None)


@contextmanager
def changes_of(author: Author) -> Iterator[None]:
    """Record this author for all changes that are made inside the block."""
    token = _author.set(author)
    try:
        yield
    finally:
        _author.reset(token)


def present_author() -> Author | None:
    """Return the author of changes made now; None for the broker."""
    return _author.get()


def author_header(author: Author) -> tuple[str, bytes]:
    """Return the record header that names the author."""
    return AUTHOR_HEADER, msgspec.json.encode(author)


def log_change(author: Author, key: str, before: bytes | None, after: bytes | None) -> None:
    """Log the fields that a change alters, secrets masked. A body of None means no register."""
    if not _logger.isEnabledFor(logging.INFO):
        return
    done = "created" if before is None else "deleted" if after is None else "changed"
    old, new = differing(_shown(before), _shown(after))
    change = {
        "key": key,
        **msgspec.to_builtins(author),
        "before": without_secret_fields(old),
        "after": without_secret_fields(new),
    }
    _logger.info("%s is %s by %s", key, done, author.by, extra={"change": change})


def differing(before: Any, after: Any) -> tuple[Any, Any]:
    """Return both values; for two objects only the fields that differ, at any depth."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return before, after
    pairs = {
        name: differing(before.get(name), after.get(name))
        for name in before | after
        if before.get(name) != after.get(name)
    }
    return {name: old for name, (old, _) in pairs.items()}, {
        n: new for n, (_, new) in pairs.items()
    }


def _shown(body: bytes | None) -> Any:
    if body is None:
        return None
    try:
        return msgspec.json.decode(body) if len(body) <= _SHOWN_BYTES_MAX else hidden_bytes(body)
    except msgspec.DecodeError:
        return hidden_bytes(body)
