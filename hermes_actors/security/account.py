"""Accounts and credentials: what a request shows of its author, and the seam that makes an account
of it.

A mechanism is anything with `Mechanism`'s methods; those built in are Basic, bearer tokens and
client certificates. No value here shows a secret in its text.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from hermes_actors.errors import ErrorCode, HermesError, Refused

PUBLISHER = "PUBLISHER"
"""The role that an account needs to publish where a topic asks who publishes."""


class Account(Struct, frozen=True):
    """An author who has shown who he is. `roles` and `groups` are as his directory names them."""

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
    """No header at all, for credentials that come without a request."""
    return ""


class Credentials(Struct, frozen=True):
    """The credentials that one request shows.

    `authorization` is that header, "" for none. `certificate` is the connection's, verified, None
    for none. `header` gives any other header by its name in lower case, "" for none.
    """

    authorization: str = ""
    certificate: ClientCertificate | None = None
    header: Callable[[str], str] = no_header

    def __repr__(self) -> str:
        # Without a parameter what stands for the scheme may be the secret.
        scheme = self.scheme if self.parameter else ""
        return f"Credentials(scheme={scheme!r}, certificate={self.certificate is not None})"

    @property
    def scheme(self) -> str:
        """The authorization's scheme in lower case; "" for none."""
        return self.authorization.partition(" ")[0].lower()

    @property
    def parameter(self) -> str:
        """The authorization without its scheme; "" for none."""
        return self.authorization.partition(" ")[2].strip()


def sole_authorization(lines: Sequence[str]) -> str:
    """A request's Authorization header, "" for none. Raises Refused (400) for several lines: a
    proxy in front may have checked another one than the node would.
    """
    if len(lines) > 1:
        raise Refused(
            f"The request has {len(lines)} Authorization headers, and nobody can say which of them "
            "counts; send one"
        )
    return lines[0] if lines else ""


class BadCredentials(Exception):
    """The credentials do not hold. The message says why without quoting any of them."""


class Unauthenticated(HermesError):
    """No account: credentials are missing or bad (401). Its headers say what would be taken."""

    def __init__(self, message: str, challenges: tuple[str, ...]) -> None:
        super().__init__(message, ErrorCode.OTHER, 401)
        self.headers = tuple(("www-authenticate", each) for each in challenges)


class Mechanism(Protocol):
    """One way to show who one is. Plug in your own with `security.plugins`.

    `identify` is awaited on the asyncio host loop (for publishing) and in trio (for management),
    on one thread: wait with anyio only, and keep what takes more than some milliseconds in a
    thread (`anyio.to_thread.run_sync`).
    """

    @property
    def challenge(self) -> str:
        """The WWW-Authenticate value that asks for such credentials; "" when there is none."""

    async def identify(self, credentials: Credentials) -> Account | None:
        """The account behind these credentials; None when they hold nothing of this kind.

        Raises BadCredentials for what is of this kind and does not hold, and Unavailable when
        that cannot be said now.
        """

    async def run(self) -> None:
        """Do the background work for the node's life, in trio: read files again, fetch keys. It may
        return at once. It is started again when it fails.
        """
