"""Decodes requests of bounded cost. Pure."""

from collections.abc import Callable
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from hermes_actors.errors import Refused

T = TypeVar("T", bound=Message)

MESSAGES_MAX = 1_000
"""Maximum number of messages, or of ack ids, in a request."""
_UNCOUNTED_BYTES_MAX = 32_768
_FIELDS_MAX = 8_000
_NESTED = 0x12
_LENGTH_DELIMITED = 2
# By wire type. Groups begin and end with a tag alone.
_FIXED_BYTES = {1: 8, 3: 0, 4: 0, 5: 4}
_VARINT_BITS_MAX = 63
_LONG = 0x80


def decoded(kind: Callable[[], T], data: bytes) -> T:
    """The request in these bytes. Raises Refused.

    A field of two bytes costs 100 ns and more, so a large request's fields are counted first.
    """
    if len(data) > _UNCOUNTED_BYTES_MAX and fields_in(data, _FIELDS_MAX) > _FIELDS_MAX:
        raise Refused(
            f"The request has more than {_FIELDS_MAX} fields; send fewer messages at once"
        )
    request = kind()
    try:
        request.ParseFromString(data)
    except DecodeError as error:
        raise Refused(f"The request is not of the type {request.DESCRIPTOR.full_name}") from error
    return request


def fields_in(data: bytes, most: int) -> int:
    """Count the fields of a request, of its messages in field 2, and of their attributes, until
    there are more than `most`. Bytes that are no message count up to their first defect.
    """
    count, at, size = 0, 0, len(data)
    message_end = entry_end = 0
    try:
        while at < size and count <= most:
            count += 1
            tag, at = (data[at], at + 1) if data[at] < _LONG else _varint(data, at)
            kind = tag & 7
            if kind in _FIXED_BYTES:
                at += _FIXED_BYTES[kind]
                continue
            value, at = (data[at], at + 1) if data[at] < _LONG else _varint(data, at)
            if kind != _LENGTH_DELIMITED:
                continue
            if tag == _NESTED and at >= message_end:
                message_end = at + value
            elif tag == _NESTED and at >= entry_end:
                entry_end = at + value
            else:
                at += value
    except IndexError:
        pass
    return count


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins here, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < _LONG or shift >= _VARINT_BITS_MAX:
            return value, at
        shift += 7
