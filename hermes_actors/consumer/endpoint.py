"""A subscription's endpoint, read once: where each message is pushed to, or why it cannot be.

`http[s]://[user:password@]host[:port]/path?query`. Credentials become a Basic header and leave the
address. `{field}` anywhere in the address is filled from the message's JSON body by `$.field`
(dots descend), percent-encoded.
"""

import base64
import re
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import msgspec
from msgspec import Struct

from hermes_actors.consumer.sender import Origin, Route
from hermes_actors.errors import Refused
from hermes_actors.model.redaction import HIDDEN, redacted, without_user_info

SCHEMES = ("http", "https")
_PORTS = {"http": 80, "https": 443}
_VARIABLE = re.compile(r"\{([^{}]*)\}")
_FIELD = re.compile(r"[A-Za-z_$][\w$-]*(\.[\w$-]+)*")
# RFC 3986's characters of a path and query, "%" included: what is encoded already stays so.
_TARGET_SAFE = "/?:@!$&'()*+,;=-._~%[]|"


class Unresolved(Exception):
    """A message has no address: the template's field is missing or gives no usable address."""


class Endpoint(Struct, frozen=True):
    """A parsed endpoint. `authorization` is the Basic header's value, "" without credentials."""

    template: str
    authorization: str
    lane: str
    route: Route | None

    def __repr__(self) -> str:
        template = repr(without_user_info(self.template))
        return redacted(self, template=template, authorization=HIDDEN)

    @property
    def is_template(self) -> bool:
        """True when the address depends on the message."""
        return self.route is None

    def resolve(self, body: bytes) -> Route:
        """Where the message with this body goes. Raises Unresolved."""
        if self.route is not None:
            return self.route
        try:
            document = msgspec.json.decode(body)
        # Whatever a publisher sends, it must not take the subscription's consumer down.
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Unresolved(f"the body is not JSON: {error}") from error
        address = _VARIABLE.sub(lambda match: _value(document, match.group(1)), self.template)
        try:
            return _route(address, self.lane)
        except Refused as error:
            raise Unresolved(error.message) from error


def parse_endpoint(text: str, lane: str) -> Endpoint:
    """Read an endpoint for pushes in `lane`. Raises Refused, naming what is wrong; the message
    never holds the password.
    """
    scheme, separator, rest = text.partition("://")
    scheme = scheme.lower()
    if not separator or scheme not in SCHEMES:
        raise Refused(f"endpoint: the scheme must be one of {', '.join(SCHEMES)}")
    at_authority_end = min((rest.find(mark) for mark in "/?#" if mark in rest), default=len(rest))
    credentials, at, host = rest[:at_authority_end].rpartition("@")
    address = f"{scheme}://{host}{rest[at_authority_end:]}"
    authorization = ""
    if at:
        pair = unquote(credentials).encode()
        authorization = "Basic " + base64.b64encode(pair).decode("ascii")
    variables = _VARIABLE.findall(address)
    for name in variables:
        if not _FIELD.fullmatch(name):
            raise Refused(f"endpoint: '{{{name}}}' is not a field's name; write {{field}}")
    if not variables:
        return Endpoint(address, authorization, lane, _route(address, lane))
    # Any value will do for checking what is around the variables.
    _route(_VARIABLE.sub("1", address), lane)
    return Endpoint(address, authorization, lane, None)


def _route(address: str, lane: str) -> Route:
    if any(ord(char) <= 0x20 or ord(char) == 0x7F for char in address):
        raise Refused("endpoint: spaces and control characters must be percent-encoded")
    try:
        parts = urlsplit(address)
        port = parts.port
        host = (parts.hostname or "").encode("idna" if "%" not in address else "ascii").decode()
    except ValueError as error:
        # Python's own text repeats what it could not read, which may be half of a password.
        raise Refused("endpoint: its host or its port cannot be read") from error
    if not host or "%" in host:
        raise Refused("endpoint: a host name is missing or not valid")
    default_port = _PORTS[parts.scheme]
    shown = f"[{host}]" if ":" in host else host
    authority = shown if port is None or port == default_port else f"{shown}:{port}"
    target = quote(parts.path or "/", safe=_TARGET_SAFE)
    if parts.query:
        target += "?" + quote(parts.query, safe=_TARGET_SAFE)
    if port == 0:
        raise Refused("endpoint: port 0 cannot be connected to")
    start = f"POST {target} HTTP/1.1\r\nHost: {authority}\r\n".encode("ascii")
    return Route(lane, Origin(parts.scheme, host, port or default_port), target, start)


def _value(document: Any, path: str) -> str:
    value = document
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if value is None or isinstance(value, dict | list):
        raise Unresolved(f"the message has no value at $.{path}")
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    try:
        return quote(text, safe="")
    except UnicodeEncodeError as error:
        raise Unresolved(f"the value at $.{path} is not valid text") from error
