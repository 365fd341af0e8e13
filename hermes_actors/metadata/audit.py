"""Who changed what: kept beside the command in its record, and a line of the log.

The fold does not look at it. What a change was before, the fold knows; so the records alone tell
all of an audit.
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
"""The name of the author of changes that nobody has asked for."""

_SHOWN_BYTES_MAX = 16_384
_logger = logging.getLogger(__name__)


class Author(Struct, frozen=True, omit_defaults=True):
    """Who makes a change, from which address (of the broker: its node), and the reason given."""

    by: str
    address: str = ""
    reason: str = ""


_author: ContextVar[Author | None] = ContextVar("author", default=None)


@contextmanager
def changes_of(author: Author) -> Iterator[None]:
    """Make the author that of all changes inside."""
    token = _author.set(author)
    try:
        yield
    finally:
        _author.reset(token)


def present_author() -> Author | None:
    """The author of what is changed now; None for the broker."""
    return _author.get()


def author_header(author: Author) -> tuple[str, bytes]:
    """The header of the record of the author's change."""
    return AUTHOR_HEADER, msgspec.json.encode(author)


def log_change(author: Author, key: str, before: bytes | None, after: bytes | None) -> None:
    """Log a change with the fields that differ, secrets masked. A body of None is not there."""
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
    """Both values; of two objects only the fields that differ, however deep."""
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
