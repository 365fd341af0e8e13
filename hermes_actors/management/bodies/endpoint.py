"""Validates endpoints of subscriptions, and masks their passwords.

An endpoint may consist of several addresses, separated by `;`. An address may be a URI template
such as `https://{host}/orders/{id}`, whose fields come from each message.
"""

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from hermes_actors.errors import Refused
from hermes_actors.model.endpoints import split_addresses
from hermes_actors.model.redaction import HIDDEN, redacted
from hermes_actors.security.address_guard import AddressGuard

PROTOCOLS = ("http", "https", "jms", "googlepubsub", "googlebigquery")
"""The protocols accepted without configuration."""

MASKED_PASSWORD = "*****"  # noqa: S105 -- the mask for passwords

ENDPOINT_CHARACTERS_MAX = 16_384
"""The maximum length of an endpoint. It is limited because templates are expanded per message."""

_FIELD = re.compile(r"\{[^{}\s]+\}")
_HOST_LABEL = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?")
_UNFIT = re.compile(r"[\s\x00-\x1f\x7f\"<>\\^`{|}]")
_ANY_USER_INFO = re.compile(r"^([^:]*://[^:/?#@]*):.*@", re.DOTALL)
# A password may hold unencoded characters, so it ends at the last "@".
_ADDRESS = re.compile(
    r"([^:/?#]+://)(?:([^:/?#@]*:[^/?#@]*(?:@.*)?|[^/?#]*)@)?([^/?#]*)(.*)", re.DOTALL
)


class Address(Struct, frozen=True):
    """One address, split: the scheme with `://`, the user, the password with its `:`, the host and
    port, and the rest. If the text is not an address, all of it is `rest`.
    """

    scheme: str
    user: str
    password: str
    authority: str
    rest: str

    def __repr__(self) -> str:
        return redacted(self, password=HIDDEN, rest=HIDDEN)

    @property
    def place(self) -> tuple[str, str]:
        """The scheme, and the host with its port, in lower case."""
        return self.scheme.lower(), self.authority.lower()

    @property
    def is_masked(self) -> bool:
        """True if the password is the mask."""
        return self.password.partition("@")[0] == f":{MASKED_PASSWORD}"

    @property
    def text(self) -> str:
        """The address as it was written."""
        user_info = f"{self.user}{self.password}"
        return f"{self.scheme}{user_info and user_info + '@'}{self.authority}{self.rest}"


def addresses_of(endpoint: str) -> list[Address]:
    """The addresses that an endpoint consists of."""
    return [_address(each) for each in split_addresses(endpoint)]


def _address(text: str) -> Address:
    found = _ADDRESS.fullmatch(text)
    if found is None or found[2] == "":
        return Address("", "", "", "", text)
    scheme, user_info, authority, rest = found.groups()
    user, colon, password = (user_info or "").partition(":")
    return Address(scheme, user, colon + password, authority, rest)


def require_valid_endpoint(endpoint: str, additional_protocols: Iterable[str] = ()) -> None:
    """Raises Refused for an invalid endpoint. The text hides its passwords."""
    if len(endpoint) > ENDPOINT_CHARACTERS_MAX:
        raise Refused(
            f"Subscription.endpoint has {len(endpoint)} characters; at most "
            f"{ENDPOINT_CHARACTERS_MAX} are allowed"
        )
    for each in split_addresses(endpoint):
        problem = address_problem(_FIELD.sub("dummy", each), (*PROTOCOLS, *additional_protocols))
        if problem:
            # An invalid endpoint may not follow the grammar, so more is hidden than by the mask.
            raise _refused(_ANY_USER_INFO.sub(rf"\1:{MASKED_PASSWORD}@", endpoint), problem)


def require_allowed_endpoint(endpoint: str, guard: AddressGuard) -> None:
    """Raises Refused if the endpoint's host is one that the guard forbids.

    Names are not resolved here: the sender does so, and checks the result, for each connection.
    Other protocols and hosts with template fields are not checked.
    """
    for each in addresses_of(endpoint):
        if each.place[0] not in ("http://", "https://") or _FIELD.search(each.authority):
            continue
        problem = guard.refusal_of_host(urlsplit(f"//{each.authority}").hostname or "")
        if problem:
            raise _refused(mask_endpoint(endpoint), problem)


def mask_endpoint(endpoint: str) -> str:
    """The endpoint with asterisks in place of its passwords."""
    return ";".join(
        (replace(each, password=f":{MASKED_PASSWORD}") if each.password else each).text
        for each in addresses_of(endpoint)
    )


def unmask_endpoint(shown: str, old: str) -> str:
    """Return `shown` with its masks replaced by the passwords of the old endpoint.

    A mask is replaced only if scheme, user, host and port are the same: a caller who cannot read a
    password must not be able to send it elsewhere. Raises Refused for any other mask.
    """
    known = {(*each.place, each.user): each.password for each in addresses_of(old)}
    unmasked = []
    for each in addresses_of(shown):
        password = known.get((*each.place, each.user)) if each.is_masked else each.password
        if not password and each.is_masked:
            raise _refused(
                mask_endpoint(shown),
                f"{MASKED_PASSWORD} means the stored password, but only for the same user and "
                "host; give the password",
            )
        unmasked.append(replace(each, password=password or "").text)
    return ";".join(unmasked)


def has_password_at_template(endpoint: str) -> bool:
    """True if an address has a password and a host that messages determine."""
    return any(each.password and _FIELD.search(each.authority) for each in addresses_of(endpoint))


def address_problem(filled: str, allowed: Iterable[str]) -> str:
    """What is wrong with an address whose template fields are filled in. Empty string if it is
    valid.
    """
    unfit = _UNFIT.search(filled)
    if unfit is not None:
        return f"the character {unfit.group()!r} is not allowed in a URI; percent-encode it"
    scheme, separator, _ = filled.partition("://")
    if not separator:
        return "expected <protocol>://<address>, for example https://host/path"
    if scheme.lower() not in allowed:
        return f"protocol '{scheme}' is not one of {', '.join(allowed)}"
    try:
        address = urlsplit(filled)
        port = address.port
    except ValueError:
        # Python's error text is not used: it quotes the address, perhaps half of a password.
        return "its host or its port cannot be read; escape reserved characters of a password"
    if "@" in address.netloc and filled.count("@") > 1:
        return "it has a second '@'; write reserved characters percent-encoded, such as %40 for '@'"
    host = address.hostname
    if port == 0:
        return "port 0 cannot be connected to"
    if not host:
        return "it has no host"
    if "_" in host:
        return f"host '{host}' contains an underscore, which host names cannot"
    # urlsplit has checked an IPv6 address in brackets.
    labels = [] if ":" in host else host.removesuffix(".").split(".")
    is_name = all(_HOST_LABEL.fullmatch(label) for label in labels)
    return "" if is_name else f"'{host}' is not a host name"


def _refused(shown: str, problem: str) -> Refused:
    return Refused(f"Subscription.endpoint '{shown}' is not valid: {problem}")
