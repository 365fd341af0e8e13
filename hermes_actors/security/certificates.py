"""Authentication with client certificates, which the listener has verified."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from hermes_actors.security.account import (
    Account,
    BadCredentials,
    ClientCertificate,
    Credentials,
)
from hermes_actors.security.users import Users

NameFrom = Literal["common_name", "dns", "uri", "email"]


def client_certificate(peer: Mapping[str, Any] | None) -> ClientCertificate | None:
    """The names in the result of `SSLSocket.getpeercert()`. None without a certificate."""
    if not peer:
        return None
    common_names = [
        value for part in peer.get("subject", ()) for key, value in part if key == "commonName"
    ]
    names: dict[str, list[str]] = {"DNS": [], "URI": [], "email": []}
    for kind, value in peer.get("subjectAltName", ()):
        if kind in names and isinstance(value, str):
            names[kind].append(value)
    return ClientCertificate(
        # The last one is the most specific.
        common_names[-1] if common_names else "",
        tuple(names["DNS"]),
        tuple(names["URI"]),
        tuple(names["email"]),
    )


class CertificateMechanism:
    """Identifies the holder of the connection's certificate, if the request has no Authorization
    header.

    `name_from`: the name in the certificate that becomes the account's. Each account gets `roles`,
    and the roles and groups of the user of that name in the users file, if there is one.
    """

    challenge = ""

    def __init__(
        self, name_from: NameFrom, roles: frozenset[str], users: Callable[[], Users]
    ) -> None:
        self._name_from = name_from
        self._roles = roles
        self._users = users

    async def identify(self, credentials: Credentials) -> Account | None:
        """The holder's account. None without a certificate or with an Authorization header. Raises
        BadCredentials if the certificate lacks the name.
        """
        certificate = credentials.certificate
        if certificate is None or credentials.authorization:
            return None
        name = _name(certificate, self._name_from)
        if not name:
            raise BadCredentials(
                f"The client certificate has no name of the kind {self._name_from}"
            )
        user = self._users().account(name)
        if user is None:
            return Account(name, self._roles)
        return Account(name, user.roles | self._roles, user.groups)

    async def run(self) -> None:
        """Do nothing, because the listener verifies certificates."""


def _name(certificate: ClientCertificate, name_from: NameFrom) -> str:
    if name_from == "common_name":
        return certificate.common_name
    names = {
        "dns": certificate.dns_names,
        "uri": certificate.uris,
        "email": certificate.emails,
    }[name_from]
    return names[0] if names else ""
