"""Parses CloudEvents 1.0 over HTTP into attributes, data and key, or says what is wrong. Pure.

Binary mode: the attributes are `ce-…` headers and the body is the data. Structured mode: the body
is one event in the CloudEvents JSON format. Elements of a batch have the same JSON format, see
`event_in`.
"""

import base64
import binascii
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import Struct

from hermes_actors.errors import Refused
from hermes_actors.model.message import Headers

STRUCTURED = "application/cloudevents+json"
BATCHED = "application/cloudevents-batch+json"
VERSION_HEADER = "ce-specversion"
VERSION = "1.0"
ATTRIBUTES_MAX = 1_000
"""Maximum number of members of a JSON event, including its data."""
ATTRIBUTES_BYTES_MAX = 16_384
"""Maximum total size of the names and values of an event's attributes."""

_REQUIRED = ("specversion", "id", "source", "type")
_STRINGS = frozenset((*_REQUIRED, "datacontenttype", "dataschema", "subject", "time"))
_PREFIX = "ce-"
_NAME = re.compile(r"[a-z0-9]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_JSON_TYPE = re.compile(r"[^/;]+/([^;]+\+)?json[ \t]*(;.*)?", re.IGNORECASE)
_ESCAPED = re.compile(r"\\(.)")
_INTEGER_MAX = 2**31

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


class CloudEvent(Struct, frozen=True):
    """One event. `attributes` have no prefix and keep the order of the request. `key` is the
    extension `partitionkey`; None without it.
    """

    attributes: Headers
    body: bytes
    key: bytes | None


def is_structured(content_type: str | None) -> bool:
    """True if the body is one event in JSON. Raises Refused for other CloudEvents media types."""
    media_type, _, parameters = (content_type or "").partition(";")
    media_type = media_type.strip().lower()
    if media_type == BATCHED:
        raise Refused(
            f"Content-Type {BATCHED}: this path takes one message; send batches to its /batch, as "
            "in /topics/{topic}/batch"
        )
    if media_type != STRUCTURED:
        if media_type.startswith("application/cloudevents"):
            raise Refused(
                f"Content-Type {media_type} is not supported; send one CloudEvent as {STRUCTURED}"
            )
        return False
    charset = re.search(r"(?i)\bcharset\s*=\s*\"?([^\";\s]+)", parameters)
    if charset is not None and charset[1].lower() not in ("utf-8", "utf8", "us-ascii"):
        raise Refused(
            f"Content-Type: charset {charset[1]} is not supported; send the event in UTF-8"
        )
    return True


def event_of(pairs: Iterable[tuple[str, str]]) -> CloudEvent:
    """Return the event with these headers as attributes and an empty body. Raises Refused."""
    attributes: dict[str, str] = {}
    for header, raw in pairs:
        name = header.lower()
        if name == "content-type" and raw:
            attributes["datacontenttype"] = raw
        elif name == _PREFIX + "datacontenttype":
            raise _wrong("datacontenttype", "is the header Content-Type in the binary mode")
        elif name.startswith(_PREFIX):
            name = name[len(_PREFIX) :]
            attributes[_checked_name(name)] = _header_value(name, raw)
    return _event(attributes, b"")


def event_in(text: bytes | msgspec.Raw) -> CloudEvent:
    """Parse the event from this JSON object. Raises Refused, naming the attribute."""
    try:
        members = _members.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(f"A CloudEvent in JSON must be an object: {error}") from error
    if len(members) > ATTRIBUTES_MAX:
        raise Refused(
            f"The CloudEvent has {len(members)} members; at most {ATTRIBUTES_MAX} are allowed; "
            "put large values into the data"
        )
    attributes: dict[str, str] = {}
    data, data_base64 = (_present(members.pop(name, None)) for name in ("data", "data_base64"))
    for name, raw in members.items():
        value = _decoded(name, raw)
        if value is not None:
            attributes[_checked_name(name)] = _json_value(name, value)
    if data is not None and data_base64 is not None:
        raise _wrong("data_base64", "cannot be combined with data; send one of them")
    if data_base64 is not None:
        return _event(attributes, _from_base64(data_base64))
    return _event(attributes, _data(data, attributes.get("datacontenttype")))


def _event(attributes: dict[str, str], body: bytes) -> CloudEvent:
    for name in _REQUIRED:
        if name not in attributes:
            raise _wrong(name, "is missing; every CloudEvent has it")
    if attributes["specversion"] != VERSION:
        raise _wrong("specversion", f"is '{attributes['specversion']}'; send {VERSION}")
    size_bytes = 0
    for name, value in attributes.items():
        size_bytes += len(name) + len(value.encode())
        _check(name, value)
    if size_bytes > ATTRIBUTES_BYTES_MAX:
        raise Refused(
            f"The CloudEvent's attributes take {size_bytes} bytes; at most {ATTRIBUTES_BYTES_MAX} "
            "are allowed; put large values into the data"
        )
    key = attributes.get("partitionkey")
    return CloudEvent(tuple(attributes.items()), body, None if key is None else key.encode())


def _check(name: str, value: str) -> None:
    """Raises Refused if the attribute cannot have this value."""
    if not value and (name in _STRINGS or name == "partitionkey"):
        raise _wrong(name, "is empty")
    if _CONTROL.search(value):
        raise _wrong(name, "contains a control character")


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name) or name in ("data", "data_base64"):
        raise Refused(
            f"CloudEvent attribute '{name}': a name consists of lower-case letters and digits"
        )
    return name


def _header_value(name: str, raw: str) -> str:
    """Decode a header's value: remove quotes, then percent-decode, as the HTTP binding asks. Raises
    Refused if it is not UTF-8.
    """
    text = raw.strip(" \t")
    if len(text) > 1 and text[0] == text[-1] == '"':
        text = _ESCAPED.sub(r"\1", text[1:-1])
    try:
        # Bytes beyond ASCII should be percent-encoded, but are accepted if they are UTF-8.
        return unquote_to_bytes(text.encode("latin-1")).decode()
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        raise _wrong(name, "is not UTF-8; write what is not ASCII with percent signs") from error


def _json_value(name: str, value: Any) -> str:
    if type(value) is str:
        return value
    if name in _STRINGS or name == "partitionkey":
        raise _wrong(name, "must be a string")
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is int and -_INTEGER_MAX <= value < _INTEGER_MAX:
        return str(value)
    raise _wrong(name, "must be a string, a boolean or an integer of 32 bits")


def _data(data: msgspec.Raw | None, content_type: str | None) -> bytes:
    """The data as bytes: JSON is kept as it is; for another content type, a JSON string is decoded
    to its text.
    """
    if data is None:
        return b""
    text = bytes(data)
    is_json = content_type is None or _JSON_TYPE.fullmatch(content_type) is not None
    return text if is_json or text[:1] != b'"' else _encoded("data", _decoded("data", data))


def _from_base64(raw: msgspec.Raw) -> bytes:
    value = _decoded("data_base64", raw)
    if type(value) is not str:
        raise _wrong("data_base64", "must be a string")
    try:
        return base64.b64decode(_encoded("data_base64", value), validate=True)
    except binascii.Error as error:
        raise _wrong("data_base64", f"is not base64: {error}") from error


def _present(raw: msgspec.Raw | None) -> msgspec.Raw | None:
    """Return the value; None also for `null`, which counts as absent."""
    return None if raw is None or bytes(raw) == b"null" else raw


def _decoded(name: str, raw: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _wrong(name, f"is not JSON: {error}") from error


def _encoded(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise _wrong(name, "is not Unicode") from error


def _wrong(name: str, what: str) -> Refused:
    return Refused(f"CloudEvent attribute '{name}' {what}")
