"""Accounts, credentials, and the interface of mechanisms, which turn credentials into accounts.

The built-in mechanisms are Basic, bearer tokens and client certificates. No repr here shows a
secret.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from hermes_actors.errors import ErrorCode, HermesError, Refused

PUBLISHER = "PUBLISHER"
"""The role that an account needs to publish to a topic that requires authentication."""


class Account(Struct, frozen=True):
    """An authenticated author. `roles` and `groups` have the names of their source, for example a
    token.
    """

    name: str
    roles: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()


class ClientCertificate(Struct, frozen=True):
    """The names in a verified client certificate."""

    common_name: str = ""
    dns_names: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()
    emails: tuple[str, ...] = ()


def no_header(_name: str) -> str:
    """Empty string for every header, for credentials without a request."""
    return ""


class Credentials(Struct, frozen=True):
    """The credentials of one request.

    `authorization`: the Authorization header. `certificate`: the connection's verified client
    certificate, None if there is none. `header`: returns any other header by its name in lower
    case. A missing header is an empty string.
    """

    authorization: str = ""
    certificate: ClientCertificate | None = None
    header: Callable[[str], str] = no_header

    def __repr__(self) -> str:
        # If there is only one word, it may be the secret rather than the scheme.
        scheme = self.scheme if self.parameter else ""
        return f"Credentials(scheme={scheme!r}, certificate={self.certificate is not None})"

    @property
    def scheme(self) -> str:
        """The scheme of the Authorization header, in lower case. Empty string if there is none."""
        return self.authorization.partition(" ")[0].lower()

    @property
    def parameter(self) -> str:
        """The Authorization header without its scheme. Empty string if there is none."""
        return self.authorization.partition(" ")[2].strip()


def sole_authorization(lines: Sequence[str]) -> str:
    """A request's Authorization header; empty string if there is none. Raises Refused (400) if
    there are several: a proxy might have checked another one than the node would.
    """
    if len(lines) > 1:
        raise Refused(
            f"The request has {len(lines)} Authorization headers, and it is unclear which of them "
            "counts; send one"
        )
    return lines[0] if lines else ""


class BadCredentials(Exception):
    """The credentials are invalid. The message gives the reason without quoting them."""


class Unauthenticated(HermesError):
    """Credentials are missing or invalid (401). The headers name the accepted schemes."""

    def __init__(self, message: str, challenges: tuple[str, ...]) -> None:
        super().__init__(message, ErrorCode.OTHER, 401)
        self.headers = tuple(("www-authenticate", each) for each in challenges)


class Mechanism(Protocol):
    """One way to authenticate. Add your own with `security.plugins`.

    `identify` is awaited on the asyncio host loop (for publishing) and in trio (for management), in
    the same thread. So wait with anyio only, and run work of more than a few milliseconds in a
    thread (`anyio.to_thread.run_sync`).
    """

    @property
    def challenge(self) -> str:
        """The WWW-Authenticate value that asks for such credentials; may be an empty string."""

    async def identify(self, credentials: Credentials) -> Account | None:
        """The account with these credentials. None if there are no credentials of this kind.

        Raises BadCredentials if they are invalid, and Unavailable if they cannot be checked now.
        """

    async def run(self) -> None:
        """Background work, for example reading files again or fetching keys. A trio coroutine that
        runs as long as the node, or returns at once. It is restarted if it fails.
        """
