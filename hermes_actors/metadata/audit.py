"""Who changed what: headers of the command's record, and a line in the log.

The fold ignores the headers. Since folding the log also gives the value before each change, the
metadata log is a complete audit trail.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import msgspec
from msgspec import Struct

from hermes_actors.model.redaction import hidden_bytes, without_secret_fields

AUTHOR_HEADER = "hermes-author"
"""The header of a command's record that holds its author, as JSON."""

REPLACED_HEADER = "hermes-replaced"
"""The header of a copy that names the version which the change replaced where it was made: its
incarnation, stamp and datacentre. Zeros if it replaced none.
"""

BROKER = "[broker]"
"""The author of changes that the broker makes by itself."""

UNKNOWN = "[unknown]"
"""The author of a change that reached this datacentre without its author, after a log was lost."""

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


def author_in(headers: Mapping[str, bytes]) -> Author:
    """Return the author that a record's headers name; UNKNOWN if they name none."""
    try:
        return msgspec.json.decode(headers[AUTHOR_HEADER], type=Author)
    except (KeyError, msgspec.DecodeError, UnicodeDecodeError):
        return Author(UNKNOWN)


def log_change(author: Author, key: str, before: bytes | None, after: bytes | None) -> None:
    """Log the fields that a change alters, secrets masked. A body of None means no register."""
    if not _logger.isEnabledFor(logging.INFO):
        return
    done = action_of(before, after)
    old, new = differing(shown(before), shown(after))
    change = {
        "key": key,
        **msgspec.to_builtins(author),
        "before": without_secret_fields(old),
        "after": without_secret_fields(new),
    }
    _logger.info("%s is %s by %s", key, done, author.by, extra={"change": change})


def log_overruled(key: str, loser: Author, winner: Author, dc: str) -> None:
    """Warn that an accepted change of this datacentre lost against one of another."""
    told = "%s: the change by %s was overruled by %s in %s, made at the same time; see hermes audit"
    _logger.warning(told, key, loser.by, winner.by, dc)


def action_of(before: bytes | None, after: bytes | None) -> str:
    """Return what was done to a register with these bodies; None means no register."""
    return "created" if before is None else "deleted" if after is None else "changed"


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


def shown(body: bytes | None) -> Any:
    """Decode a body; only the length of one that is large, or no JSON."""
    if body is None:
        return None
    try:
        return msgspec.json.decode(body) if len(body) <= _SHOWN_BYTES_MAX else hidden_bytes(body)
    except msgspec.DecodeError:
        return hidden_bytes(body)
