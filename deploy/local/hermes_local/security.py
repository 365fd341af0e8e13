"""How clients prove who they are and how their connections are encrypted, as Kafka's settings."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from hermes_local.failures import LaunchFailed

Mechanism = Literal["none", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

# They stand between quotes in a login line and between brackets on a command line.
_USERNAME = re.compile(r"[A-Za-z0-9_-]+")
_PASSWORD = re.compile(r"[^\s\"\\,=\[\]]+")


@dataclass(frozen=True)
class Security:
    """The demands on clients. Brokers talk among themselves in plain text, on loopback.

    With `tls`, `directory` holds certificate.pem (the broker's, and its chain), key.pem and ca.pem;
    with `client_auth`, clients must show a certificate that ca.pem signed. With a `mechanism` they
    must know `username` and `password`.
    """

    directory: Path | None = None
    mechanism: Mechanism = "none"
    username: str = ""
    password: str = ""
    tls: bool = False
    client_auth: bool = False

    def __repr__(self) -> str:
        return f"Security({self.protocol}, {self.mechanism}, username={self.username!r})"

    @property
    def protocol(self) -> str:
        """The protocol's name for clients: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
        plain = "SSL" if self.tls else "PLAINTEXT"
        return plain if self.mechanism == "none" else f"SASL_{plain}"

    @property
    def is_scram(self) -> bool:
        """Whether the password lies, salted, in the cluster's metadata."""
        return self.mechanism.startswith("SCRAM-")

    @property
    def scram_user(self) -> str:
        """The user as StorageTool adds it."""
        return f"{self.mechanism}=[name={self.username},password={self.password}]"

    def check(self) -> None:
        """Raises LaunchFailed for what a broker could not start with."""
        if self.tls and self.directory is None:
            raise LaunchFailed("Security.directory: TLS needs the folder of the certificates")
        if self.client_auth and not self.tls:
            raise LaunchFailed("Security.client_auth: certificates of clients need tls=True")
        if self.mechanism == "none":
            return
        if not _USERNAME.fullmatch(self.username):
            raise LaunchFailed(
                f"Security.username: '{self.username}': use letters, digits, _ and - only"
            )
        if not _PASSWORD.fullmatch(self.password):
            raise LaunchFailed(
                "Security.password: it is empty or has a blank, a quote, a backslash, a comma, "
                "'=' or a bracket; use other characters"
            )

    def settings(self, listener: str) -> dict[str, str]:
        """The settings of this listener (its name in capitals). Raises LaunchFailed."""
        self.check()
        prefix = f"listener.name.{listener.lower()}"
        found: dict[str, str] = {}
        if self.mechanism != "none":
            found[f"{prefix}.sasl.enabled.mechanisms"] = self.mechanism
            login = f"{prefix}.{self.mechanism.lower()}.sasl.jaas.config"
            found[login] = self._login_line()
        if self.tls:
            found[f"{prefix}.ssl.keystore.type"] = "PEM"
            found[f"{prefix}.ssl.keystore.key"] = self._pem("key.pem")
            found[f"{prefix}.ssl.keystore.certificate.chain"] = self._pem("certificate.pem")
            found[f"{prefix}.ssl.truststore.type"] = "PEM"
            found[f"{prefix}.ssl.truststore.certificates"] = self._pem("ca.pem")
            found[f"{prefix}.ssl.client.auth"] = "required" if self.client_auth else "none"
        return found

    def _login_line(self) -> str:
        package = "org.apache.kafka.common.security"
        if self.is_scram:
            return f"{package}.scram.ScramLoginModule required;"
        return f'{package}.plain.PlainLoginModule required user_{self.username}="{self.password}";'

    def _pem(self, name: str) -> str:
        assert self.directory is not None, "checked before"
        path = self.directory / name
        try:
            text = path.read_text("ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise LaunchFailed(
                f"Security.directory: {path} cannot be read as PEM: {error}; the folder must hold "
                "certificate.pem, key.pem and ca.pem"
            ) from error
        return pkcs8(text) if name == "key.pem" else text


PLAIN_TEXT = Security()
"""Clients need prove nothing."""


def pkcs8(pem: str) -> str:
    """The private key of `pem` as PKCS #8, the only form that Kafka reads.

    Raises LaunchFailed for anything else, such as an encrypted key.
    """
    try:
        key = serialization.load_pem_private_key(pem.encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise LaunchFailed(
            f"key.pem: it holds no plain private key in PEM form: {error}"
        ) from error
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
