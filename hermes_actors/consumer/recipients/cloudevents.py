"""Messages as CloudEvents 1.0 in HTTP's binary mode: `ce-` headers, the body is the data.

A message that was published as an event goes out with the event's own attributes; any other is made
one of what is known of it.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import quote

from hermes_actors.model.message import Headers, Message

PREFIX = "ce-"
_DATA_TYPE = "datacontenttype"
_KEY = "partitionkey"
_NAME = re.compile(r"[a-z0-9]+")
# What may stand in a header as it is: all that can be seen but `"` and `%` (the HTTP binding).
_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
_LINE_BREAKS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# A record that others wrote says not when it was published.
_UNKNOWN_TIME_MS = 1
# The year 10000, which RFC 3339 cannot write: records of others may say anything.
_TIME_MS_END = 253_402_300_800_000


class CloudEvents:
    """Renders one subscription's messages. `instead` are attributes without prefix that take the
    place of those made here (`type`, say); they never change what was published as an event.
    """

    def __init__(self, topic: str, content_type: str, instead: Mapping[str, str]) -> None:
        self._content_type = content_type
        self._instead = dict(instead)
        self._source = f"/topics/{topic}"
        self._type = topic

    def lines(self, message: Message) -> bytes:
        """The message's Content-Type and `ce-` header lines, each ended by CRLF."""
        attributes = self._made(message)
        content_type = self._content_type
        if message.attributes:
            attributes = self._published(message.attributes, attributes)
            content_type = attributes.pop(_DATA_TYPE, content_type)
        if message.key is not None and _KEY not in attributes:
            key = _text(message.key)
            if key:
                attributes[_KEY] = key
        lines = [b"Content-Type: %b\r\n" % _one_line(content_type)]
        lines += [
            b"ce-%b: %b\r\n" % (name.encode("ascii"), _encoded(value))
            for name, value in attributes.items()
        ]
        return b"".join(lines)

    def _made(self, message: Message) -> dict[str, str]:
        made = {
            "specversion": "1.0",
            "id": message.id,
            "source": self._source,
            "type": self._type,
        }
        if _UNKNOWN_TIME_MS < message.published_at_ms < _TIME_MS_END:
            made["time"] = _time(message.published_at_ms)
        return {**made, **self._instead}

    def _published(self, attributes: Headers, made: dict[str, str]) -> dict[str, str]:
        own = {name: value for name, value in attributes if _NAME.fullmatch(name) and value}
        # An event that others wrote into the log may lack what every event has.
        required = {name: made[name] for name in ("specversion", "id", "source", "type")}
        return {**required, **own}


def _time(ms: int) -> str:
    moment = datetime.fromtimestamp(ms / 1_000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms % 1_000:03d}Z"


def _text(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return ""


def _encoded(value: str) -> bytes:
    if value.isascii() and value.isalnum():
        return value.encode("ascii")
    return quote(value, safe=_SAFE, errors="replace").encode("ascii")


def _one_line(value: str) -> bytes:
    return _LINE_BREAKS.sub(" ", value).strip().encode("utf-8", "replace")
