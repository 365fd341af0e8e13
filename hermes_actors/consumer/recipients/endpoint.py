"""A subscription's endpoint, parsed once: where each message is pushed to, or why it cannot be.

`http[s]://[user:password@]host[:port]/path?query`, or several separated by `;`. Credentials become
a Basic header and are removed from the address. `{field}` in the address is filled from the
message's JSON body by `$.field` (dots descend), percent-encoded. In the host it must be one label;
in the port it is not allowed.
"""

import base64
import re
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hermes_actors.consumer.senders.sender import Origin, PushRoute
from hermes_actors.errors import Refused
from hermes_actors.model.endpoints import split_addresses
from hermes_actors.model.redaction import HIDDEN, redacted, without_user_info
from hermes_actors.security.address_guard import literal_address

SCHEMES = ("http", "https")
_PORTS = {"http": 80, "https": 443}
_VARIABLE = re.compile(r"\{([^{}]*)\}")
_FIELD = re.compile(r"[A-Za-z_$][\w$-]*(\.[\w$-]+)*")
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
# RFC 3986's characters of a path and query, including "%": what is encoded already stays so.
_TARGET_SAFE = "/?:@!$&'()*+,;=-._~%[]|"


class Unresolved(Exception):
    """The message has no address: the template's field is missing or gives no valid address."""


class Endpoint(Struct, frozen=True):
    """A parsed address. `authorization` is the Basic header's value, an empty string without
    credentials.

    `hosts` are the hosts (`name` or `*.domain`) that a template may resolve to; if empty, each
    variable in the host must be one label. `route` is None if the address depends on the message.
    """

    template: str
    authorization: str
    subscription: str
    route: PushRoute | None
    hosts: tuple[str, ...] = ()

    def __repr__(self) -> str:
        template = repr(without_user_info(self.template))
        return redacted(self, template=template, authorization=HIDDEN)

    @property
    def is_template(self) -> bool:
        """True if the address depends on the message."""
        return self.route is None

    def resolve(self, body: bytes) -> PushRoute:
        """The route for a message with this body. Raises Unresolved."""
        if self.route is not None:
            return self.route
        try:
            document = msgspec.json.decode(body)
        # A publisher's body must never end the subscription's consumer.
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Unresolved(f"the body is not JSON: {error}") from error
        authority, rest = _split_authority(self.template)
        authority = _VARIABLE.sub(lambda each: self._host_part(document, each.group(1)), authority)
        rest = _VARIABLE.sub(lambda each: _value(document, each.group(1)), rest)
        try:
            route = _route(authority + rest, self.subscription)
        except Refused as error:
            raise Unresolved(error.message) from error
        host = route.origin.host
        if self.hosts and not _is_one_of(host, self.hosts):
            raise Unresolved(f"{host} is not one of the allowed hosts")
        literal = literal_address(host)
        if not self.hosts and literal is not None and str(literal) != host:
            # The C library accepts `2130706433` as an IP address, though it looks like a label.
            raise Unresolved(f"{host} is an address in the form of a name")
        return route

    def _host_part(self, document: Any, path: str) -> str:
        """A value for the host. A publisher must not be able to choose where pushes go."""
        value = _value(document, path)
        if not self.hosts and not _LABEL.fullmatch(value):
            raise Unresolved(
                f"the value at $.{path} is not one label of a host's name; name the hosts in "
                "endpointAddressResolverMetadata.hosts to allow more"
            )
        return value


def parse_endpoints(
    text: str, subscription: str, hosts: tuple[str, ...] = (), schemes: tuple[str, ...] = SCHEMES
) -> tuple[Endpoint, ...]:
    """Parse an endpoint of one or several addresses, in order. Raises Refused."""
    return tuple(
        parse_endpoint(each, subscription, hosts, schemes) for each in split_addresses(text)
    )


def parse_endpoint(
    text: str, subscription: str, hosts: tuple[str, ...] = (), schemes: tuple[str, ...] = SCHEMES
) -> Endpoint:
    """Parse one address with one of the schemes, for pushes of `subscription`. Non-HTTP schemes
    have the default port 0. Raises Refused with the mistake; its message never contains the
    password.
    """
    scheme = text.partition("://")[0].lower()
    if "://" not in text or scheme not in schemes:
        raise Refused(f"endpoint: the scheme must be one of {', '.join(schemes)}")
    address, authorization = without_credentials(text)
    variables = _VARIABLE.findall(address)
    for name in variables:
        if not _FIELD.fullmatch(name):
            raise Refused(f"endpoint: '{{{name}}}' is not a field's name; write {{field}}")
    if not variables:
        return Endpoint(address, authorization, subscription, _route(address, subscription))
    if _VARIABLE.search(_port(address)):
        raise Refused(
            "endpoint: a {field} must not be the port, for whoever publishes would choose it; "
            "write the port"
        )
    # Any value will do to check the text around the variables.
    _route(_VARIABLE.sub("1", address), subscription)
    return Endpoint(address, authorization, subscription, None, hosts)


def without_credentials(text: str) -> tuple[str, str]:
    """The address without credentials, and the credentials as a Basic header's value. The latter is
    an empty string if there are none.
    """
    authority, rest = _split_authority(text)
    scheme, _, authority = authority.partition("://")
    credentials, at, host = authority.rpartition("@")
    authorization = ""
    if at:
        pair = unquote(credentials).encode()
        authorization = "Basic " + base64.b64encode(pair).decode("ascii")
    return f"{scheme.lower()}://{host}{rest}", authorization


def at_address(route: PushRoute, address: str) -> PushRoute:
    """The same route to one IP address of its host. TLS and Host still use the host's name."""
    return replace(route, origin=replace(route.origin, address=address))


def _split_authority(text: str) -> tuple[str, str]:
    """Scheme and authority, and the rest."""
    start = text.find("://") + 3
    end = min((at for mark in "/?#" if (at := text.find(mark, start)) >= 0), default=len(text))
    return text[:end], text[end:]


def _port(address: str) -> str:
    """The text of the port in an address without credentials. Empty string if there is none."""
    authority = _split_authority(address)[0].partition("://")[2]
    return authority.rpartition("]")[2].rpartition(":")[2] if ":" in authority else ""


def _is_one_of(host: str, patterns: tuple[str, ...]) -> bool:
    return any(
        host == each or (each.startswith("*.") and host.endswith(each[1:])) for each in patterns
    )


def _route(address: str, subscription: str) -> PushRoute:
    if any(ord(char) <= 0x20 or ord(char) == 0x7F for char in address):
        raise Refused("endpoint: spaces and control characters must be percent-encoded")
    try:
        parts = urlsplit(address)
        port = parts.port
        host = (parts.hostname or "").encode("idna" if "%" not in address else "ascii").decode()
    except ValueError as error:
        # Python's own text quotes what it could not parse, which may be half a password.
        raise Refused("endpoint: its host or its port cannot be read") from error
    if not host or "%" in host:
        raise Refused("endpoint: a host name is missing or not valid")
    default_port = _PORTS.get(parts.scheme, 0)
    shown = f"[{host}]" if ":" in host else host
    authority = shown if port is None or port == default_port else f"{shown}:{port}"
    target = quote(parts.path or "/", safe=_TARGET_SAFE)
    if parts.query:
        target += "?" + quote(parts.query, safe=_TARGET_SAFE)
    if port == 0:
        raise Refused("endpoint: port 0 cannot be connected to")
    start = f"POST {target} HTTP/1.1\r\nHost: {authority}\r\n".encode("ascii")
    return PushRoute(subscription, Origin(parts.scheme, host, port or default_port), target, start)


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
