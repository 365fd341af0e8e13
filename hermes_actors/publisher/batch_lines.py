"""What the publisher of a batch is told of each message: a line of JSON. Pure."""

from collections.abc import Sequence

import msgspec

from hermes_actors.errors import HermesError
from hermes_actors.log.base import Stored
from hermes_actors.publisher.answers import Buffered, Settled, error_of

_STORED = b'{"status":201,"id":"%b"}\n'
_KEPT = b'{"status":202,"id":"%b"}\n'
_BEGINNING, _END = _STORED.split(b"%b")
LINE_BYTES = len(_BEGINNING) + 36 + len(_END)
"""The line of a message that is stored."""


def stored_lines(ids: Sequence[bytes]) -> bytes:
    """The lines of messages that are all stored."""
    return _BEGINNING + (_END + _BEGINNING).join(ids) + _END if ids else b""


def lines_of(ids: Sequence[bytes], outcomes: Sequence[Settled], topic: str) -> bytes:
    """The lines of messages with these outcomes."""
    lines = []
    for message_id, outcome in zip(ids, outcomes, strict=True):
        if isinstance(outcome, Stored):
            lines.append(_STORED % message_id)
        elif isinstance(outcome, Buffered):
            lines.append(_KEPT % message_id)
        else:
            lines.append(_error_line(error_of(outcome, topic), message_id))
    return b"".join(lines)


def end_line(error: HermesError) -> bytes:
    """The last line of a stream that ends before its body does: it has no id, for it is no
    message's.
    """
    return _encode({"status": error.status, "message": error.message, "code": error.code.name})


def _error_line(error: HermesError, message_id: bytes) -> bytes:
    return _encode(
        {
            "status": error.status,
            "id": message_id.decode(),
            "message": error.message,
            "code": error.code.name,
        }
    )


def _encode(fields: dict[str, object]) -> bytes:
    return msgspec.json.encode(fields) + b"\n"
