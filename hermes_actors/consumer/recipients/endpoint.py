"""A subscription's endpoint, read once: where each message is pushed to, or why it cannot be.

`http[s]://[user:password@]host[:port]/path?query`, or several with `;` between them. Credentials
become a Basic header and leave the address. `{field}` in the address is filled from the message's
JSON body by `$.field` (dots descend), percent-encoded; within the host it is one label, and it is
never the port.
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
# RFC 3986's characters of a path and query, "%" included: what is encoded already stays so.
_TARGET_SAFE = "/?:@!$&'()*+,;=-._~%[]|"


class Unresolved(Exception):
    """A message has no address: the template's field is missing or gives no usable address."""


class Endpoint(Struct, frozen=True):
    """A parsed address. `authorization` is the Basic header's value, "" without credentials.

    `hosts` are the hosts (`name` or `*.domain`) that a template's host may become; none: each
    variable in it is one label. `route` is None where the address depends on the message.
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
        """True when the address depends on the message."""
        return self.route is None

    def resolve(self, body: bytes) -> PushRoute:
        """Return where the message with this body goes. Raises Unresolved."""
        if self.route is not None:
            return self.route
        try:
            document = msgspec.json.decode(body)
        # Whatever a publisher sends, it must not take the subscription's consumer down.
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
            raise Unresolved(f"{host} is none of the hosts that it may become")
        literal = literal_address(host)
        if not self.hosts and literal is not None and str(literal) != host:
            # `2130706433` is one label, and any address of all to the C library.
            raise Unresolved(f"{host} is an address in the form of a name")
        return route

    def _host_part(self, document: Any, path: str) -> str:
        """A value for the host. Who publishes must not choose where pushes go."""
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
    """Read an endpoint of one address or several, in their order. Raises Refused."""
    return tuple(
        parse_endpoint(each, subscription, hosts, schemes) for each in split_addresses(text)
    )


def parse_endpoint(
    text: str, subscription: str, hosts: tuple[str, ...] = (), schemes: tuple[str, ...] = SCHEMES
) -> Endpoint:
    """Read one address of one of the schemes for pushes of `subscription`; a scheme that is not
    HTTP's has no port by default, 0. Raises Refused, naming what is wrong; the message never holds
    the password.
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
    # Any value will do for checking what is around the variables.
    _route(_VARIABLE.sub("1", address), subscription)
    return Endpoint(address, authorization, subscription, None, hosts)


def without_credentials(text: str) -> tuple[str, str]:
    """The address alone, and its credentials as a Basic header's value, "" when it has none."""
    authority, rest = _split_authority(text)
    scheme, _, authority = authority.partition("://")
    credentials, at, host = authority.rpartition("@")
    authorization = ""
    if at:
        pair = unquote(credentials).encode()
        authorization = "Basic " + base64.b64encode(pair).decode("ascii")
    return f"{scheme.lower()}://{host}{rest}", authorization


def at_address(route: PushRoute, address: str) -> PushRoute:
    """Return the same route to one address of its host, which TLS and Host still name."""
    return replace(route, origin=replace(route.origin, address=address))


def _split_authority(text: str) -> tuple[str, str]:
    """Scheme and authority, and what follows."""
    start = text.find("://") + 3
    end = min((at for mark in "/?#" if (at := text.find(mark, start)) >= 0), default=len(text))
    return text[:end], text[end:]


def _port(address: str) -> str:
    """Return the text in the port's place of an address without credentials; "" if there is
    none.
    """
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
        # Python's own text repeats what it could not read, which may be half of a password.
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
