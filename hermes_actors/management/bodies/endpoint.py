"""Endpoints of subscriptions: which are accepted, and how they are shown without their password.

An endpoint may be a URI template, `https://{host}/orders/{id}`, that each message fills in; it is
checked with a dummy in each place.
"""

import re
from collections.abc import Iterable, Mapping
from urllib.parse import SplitResult, urlsplit

from hermes_actors.errors import Refused
from hermes_actors.model.endpoints import split_addresses
from hermes_actors.security.address_guard import AddressGuard

PROTOCOLS = ("http", "https", "jms", "googlepubsub", "googlebigquery")
"""The schemes accepted without configuration."""

MASKED_PASSWORD = "*****"  # noqa: S105 -- what is shown in place of one

_PLACE = re.compile(r"\{[^{}\s]+\}")
_DUMMY = "dummy"
_HOST_LABEL = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?")
_UNFIT = re.compile(r"[\s\x00-\x1f\x7f\"<>\\^`{|}]")
_ANY_USER_INFO = re.compile(r"^([^:]*://[^:/?#@]*):.*@", re.DOTALL)
_USER_INFO = re.compile(r"^([^:/?#]+://)([^/?#]*)@")

ENDPOINT_CHARACTERS_MAX = 16_384
"""All addresses together; each message fills in their fields."""


def require_valid_endpoint(endpoint: str, additional_protocols: Iterable[str] = ()) -> None:
    """Raises Refused that says what is wrong with the endpoint, which may be several addresses with
    `;` between them; its passwords are never repeated.
    """
    if len(endpoint) > ENDPOINT_CHARACTERS_MAX:
        raise Refused(
            f"Subscription.endpoint has {len(endpoint)} characters; at most "
            f"{ENDPOINT_CHARACTERS_MAX} are taken"
        )
    # What is refused may not follow the grammar, so more is hidden here than in an answer.
    shown = _ANY_USER_INFO.sub(rf"\1:{MASKED_PASSWORD}@", endpoint)
    for each in split_addresses(endpoint):
        _require_valid_address(each, shown, (*PROTOCOLS, *additional_protocols))


def _require_valid_address(address: str, shown: str, allowed: tuple[str, ...]) -> None:
    filled = _PLACE.sub(_DUMMY, address)
    unfit = _UNFIT.search(filled)
    if unfit is not None:
        raise _refused(shown, f"the character {unfit.group()!r} cannot stand in a URI")
    scheme, separator, _ = filled.partition("://")
    if not separator:
        raise _refused(shown, "expected <protocol>://<address>, for example https://host/path")
    if scheme.lower() not in allowed:
        raise _refused(shown, f"protocol '{scheme}' is not one of {', '.join(allowed)}")
    problem = _address_problem(filled)
    if problem:
        raise _refused(shown, problem)


def require_allowed_endpoint(endpoint: str, guard: AddressGuard) -> None:
    """Raises Refused for a valid endpoint that can be seen to lead where nothing is pushed to.

    What a name leads to is looked up by who pushes, each time. Endpoints of other protocols, and
    hosts that each message fills in, are not looked at.
    """
    for each in split_addresses(endpoint):
        if protocol_of(each) not in ("http", "https"):
            continue
        authority = _authority(_USER_INFO.sub(r"\1", each).partition("://")[2])
        if _PLACE.search(authority):
            continue
        problem = guard.refusal_of_host(urlsplit(f"//{authority}").hostname or "")
        if problem:
            raise _refused(mask_endpoint(endpoint), problem)


def _address_problem(filled: str) -> str | None:
    try:
        address = urlsplit(filled)
        port_is_wrong = address.port == 0
    except ValueError:
        # Python's own text repeats what it could not read, which may be half of a password.
        return "its host or its port cannot be read; escape reserved characters of a password"
    if port_is_wrong:
        return "port 0 cannot be connected to"
    return _host_problem(address)


def _host_problem(address: SplitResult) -> str | None:
    host = address.hostname
    if not host:
        return "it has no host"
    if ":" in host:
        return None  # urlsplit has checked the IPv6 address between the brackets.
    if "_" in host:
        return f"host '{host}' holds an underscore, which host names cannot"
    labels = host.removesuffix(".").split(".")
    if not all(_HOST_LABEL.fullmatch(label) for label in labels):
        return f"'{host}' is not a host name"
    return None


def _refused(shown: str, problem: str) -> Refused:
    return Refused(f"Subscription.endpoint '{shown}' is not valid: {problem}")


def mask_endpoint(endpoint: str) -> str:
    """The endpoint with the password of each address's user info replaced by asterisks."""
    return ";".join(_masked(each) for each in split_addresses(endpoint))


def _masked(address: str) -> str:
    found = _USER_INFO.match(address)
    if found is None:
        return address
    user, colon, _ = found.group(2).partition(":")
    if not colon:
        return address
    return f"{found.group(1)}{user}:{MASKED_PASSWORD}@{address[found.end() :]}"


def unmask_endpoint(shown: str, old: str) -> str:
    """`shown` with the old endpoint's password where the mask stands for it.

    Only for the same scheme, user, host and port: who cannot read a password must not lead it
    elsewhere. Raises Refused.
    """
    known = [_split_user_info(each) for each in split_addresses(old)]
    kept = {_place(parts): parts[1] for parts in known if parts is not None}
    return ";".join(_unmasked(each, kept, shown) for each in split_addresses(shown))


def _unmasked(address: str, kept: Mapping[tuple[str, str, str], str], shown: str) -> str:
    parts = _split_user_info(address)
    if parts is None or not _is_masked(parts[1]):
        return address
    user_info = kept.get(_place(parts))
    if user_info is None:
        raise Refused(
            f"Subscription.endpoint '{shown}' is not valid: {MASKED_PASSWORD} stands for the "
            "password of the same user at the same host only; give the password"
        )
    return f"{parts[0]}{user_info}@{parts[2]}"


def _place(parts: tuple[str, str, str]) -> tuple[str, str, str]:
    """Scheme, user, host and port."""
    scheme, user_info, rest = parts
    return scheme, user_info.partition(":")[0], _authority(rest)


def places_of(endpoint: str) -> frozenset[tuple[str, str]]:
    """Scheme, and host with port, of each address."""
    return frozenset(
        (protocol_of(each), _authority(_USER_INFO.sub(r"\1", each).partition("://")[2]))
        for each in split_addresses(endpoint)
    )


def has_password_at_template(endpoint: str) -> bool:
    """True when messages say which host gets a password."""
    parts = [_split_user_info(each) for each in split_addresses(endpoint)]
    return any(
        each is not None and ":" in each[1] and _PLACE.search(_authority(each[2])) is not None
        for each in parts
    )


def require_no_mask(endpoint: str) -> None:
    """Raises Refused for a new endpoint with the mask where its password should be."""
    for each in split_addresses(endpoint):
        parts = _split_user_info(each)
        if parts is not None and _is_masked(parts[1]):
            raise Refused(
                f"Subscription.endpoint '{mask_endpoint(endpoint)}' is not valid: "
                f"{MASKED_PASSWORD} stands for a password that is there already, and a new "
                "subscription has none; give the password"
            )


def _split_user_info(endpoint: str) -> tuple[str, str, str] | None:
    """Scheme with its slashes, user info, and what follows its `@`."""
    found = _USER_INFO.match(endpoint)
    return None if found is None else (found.group(1), found.group(2), endpoint[found.end() :])


def _is_masked(user_info: str) -> bool:
    # An `@` behind the mask would make it a part of a longer password.
    return user_info.partition(":")[2].partition("@")[0] == MASKED_PASSWORD


def _authority(rest: str) -> str:
    return re.split(r"[/?#]", rest, maxsplit=1)[0].lower()


def protocol_of(endpoint: str) -> str:
    """The endpoint's scheme in lower case."""
    return endpoint.partition("://")[0].lower()
