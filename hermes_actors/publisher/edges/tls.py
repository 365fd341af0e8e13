"""The TLS of a listener: its certificate is renewed when the files change."""

import ssl
from pathlib import Path
from typing import Any, Self

from cryptography import x509

from hermes_actors.config import TlsConfig
from hermes_actors.errors import StartupError
from hermes_actors.runtime.network_causes import pem_cause
from hermes_actors.security.users import WrongFile
from hermes_actors.telemetry.metrics import meanings

CERTIFICATES = meanings(
    "hermes_certificate",
    expires_timestamp_seconds=(
        "seconds since 1970",
        "When the certificate that a listener serves expires",
    ),
)


class ListenerTls(ssl.SSLContext):
    """Each handshake uses the newest context; existing connections keep theirs.

    `expires_s` is when the first certificate expires. Raises StartupError if the files cannot be
    used.
    """

    def __new__(cls, _config: TlsConfig, _section: str) -> Self:
        """As SSLContext."""
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, config: TlsConfig, section: str) -> None:
        self._config = config
        self.files = [config.certificate_file, config.key_file]
        if config.client_auth != "not_requested":
            self.files.append(config.client_ca_file)
        try:
            self.expires_s = self.renewed(Path(config.certificate_file).read_bytes())
        except (OSError, WrongFile) as error:
            raise StartupError(f"{section}: {', '.join(self.files)}: {error}") from error

    def renewed(self, content: bytes) -> float:
        """Load the files, which begin with `content` now. Returns when the certificate expires.

        Raises WrongFile; the context before stays in use.
        """
        try:
            ends = x509.load_pem_x509_certificate(content).not_valid_after_utc
        except ValueError as error:
            raise WrongFile("certificate_file holds no certificate in PEM form") from error
        self._current = _context(self._config)
        return ends.timestamp()

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        """As SSLContext. The event loop calls it for each connection."""
        return self._current.wrap_bio(*args, **options)


def _context(config: TlsConfig) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    # As RFC 9113, 9.2, asks for.
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE+AESGCM")
    context.options = ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(["h2", "http/1.1"])
    try:
        # Without a password OpenSSL would ask the terminal.
        context.load_cert_chain(config.certificate_file, config.key_file, lambda: "")
    except (OSError, ssl.SSLError) as error:
        raise WrongFile(
            f"certificate_file and key_file cannot be used: {pem_cause(error)}; both are PEM "
            "files, the key that of the certificate"
        ) from error
    if config.client_auth == "not_requested":
        return context
    try:
        context.load_verify_locations(config.client_ca_file)
    except (OSError, ssl.SSLError) as error:
        raise WrongFile(
            f"client_ca_file cannot be used: {pem_cause(error)}; it is a PEM file of certificates"
        ) from error
    is_required = config.client_auth == "required"
    context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
    return context
