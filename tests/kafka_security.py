"""Options for clusters whose brokers authenticate clients."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization


@dataclass(frozen=True)
class Security:
    """What clients must show. Brokers use plain text among themselves, on loopback.

    With `tls`, `directory` has certificate.pem (the broker's, with its chain), key.pem and ca.pem;
    with `client_auth`, clients must show a certificate signed by ca.pem. With a `mechanism` they
    must know `username` and `password`.
    """

    directory: Path
    mechanism: str = "none"
    username: str = ""
    password: str = ""
    tls: bool = False
    client_auth: bool = False

    @property
    def protocol(self) -> str:
        """The client protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
        plain = "SSL" if self.tls else "PLAINTEXT"
        return plain if self.mechanism == "none" else f"SASL_{plain}"

    def options(self) -> dict[str, Any]:
        """The matching arguments of `Cluster`."""
        is_scram = self.mechanism.startswith("SCRAM-")
        user = f"{self.mechanism}=[name={self.username},password={self.password}]"
        return {
            "client_protocol": self.protocol,
            "scram_users": [user] if is_scram else [],
            "settings": self._login(is_scram) | self._tls(),
        }

    def _login(self, is_scram: bool) -> dict[str, str]:
        if self.mechanism == "none":
            return {}
        package = "org.apache.kafka.common.security"
        line = f'{package}.plain.PlainLoginModule required user_{self.username}="{self.password}";'
        if is_scram:
            line = f"{package}.scram.ScramLoginModule required;"
        prefix = "listener.name.clients"
        return {
            f"{prefix}.sasl.enabled.mechanisms": self.mechanism,
            f"{prefix}.{self.mechanism.lower()}.sasl.jaas.config": line,
        }

    def _tls(self) -> dict[str, str]:
        if not self.tls:
            return {}
        prefix = "listener.name.clients.ssl"
        return {
            f"{prefix}.keystore.type": "PEM",
            f"{prefix}.keystore.key": pkcs8((self.directory / "key.pem").read_bytes()),
            f"{prefix}.keystore.certificate.chain": self._pem("certificate.pem"),
            f"{prefix}.truststore.type": "PEM",
            f"{prefix}.truststore.certificates": self._pem("ca.pem"),
            f"{prefix}.client.auth": "required" if self.client_auth else "none",
        }

    def _pem(self, name: str) -> str:
        return (self.directory / name).read_text()


def pkcs8(pem: bytes) -> str:
    """The private key as PKCS #8, the only form that Kafka reads."""
    return (
        serialization.load_pem_private_key(pem, None)
        .private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        .decode()
    )
