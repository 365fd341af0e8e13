"""The body of a batch on the wire: a JSON array that is valid whatever its messages hold.

The elements are Hermes' envelopes, which carry each message's id, or the bare messages. Bodies go
in as they were published, byte for byte, so a body is looked through before: one that is not JSON
would break the array for all others.
"""

import json
from typing import NoReturn

import msgspec
from msgspec.structs import replace

from hermes_actors.model.message import Message, UndecodableRecord, enveloped
from hermes_actors.model.subscription import BatchBody

ARRAY_BYTES = 2
"""The brackets of an array."""

_MESSAGE_ID = "messageId"
_skim = msgspec.json.Decoder(msgspec.Raw).decode


def element_of(message: Message, form: BatchBody) -> bytes:
    """The message as an element of a batch. Raises UndecodableRecord if its body is not JSON."""
    require_json(message.body)
    if form is BatchBody.MESSAGES:
        return message.body
    if message.propagated:
        # The publisher's headers bring the id with them, as in Hermes, and only they do.
        message = replace(message, propagated=(*message.propagated, (_MESSAGE_ID, message.id)))
    return enveloped(message)


def array_of(elements: list[bytes]) -> bytes:
    """Return the body of a batch with these elements."""
    return b"[" + b",".join(elements) + b"]"


def require_json(body: bytes) -> None:
    """Raise UndecodableRecord unless the body is one JSON value in UTF-8.

    The common case is one pass over the bytes that makes no objects.
    """
    try:
        text = None if body.isascii() else body.decode()
        try:
            _skim(body)
        except msgspec.DecodeError:
            # Stricter than JSON: it takes no half of a surrogate pair, which subscribers may.
            json.loads(text or body.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise UndecodableRecord(f"the message is not JSON: {error}") from error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON value")
