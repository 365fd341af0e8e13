"""Whose client certificates a TLS listener takes."""

import ssl

from hermes_actors.config import TlsConfig
from hermes_actors.errors import StartupError


def trust_clients(context: ssl.SSLContext, tls: TlsConfig, section: str = "frontend.tls") -> None:
    """Let the context ask clients for certificates, as `section` says. Raises StartupError."""
    if tls.client_auth == "not_requested":
        return
    try:
        context.load_verify_locations(tls.client_ca_file)
    except (OSError, ssl.SSLError) as error:
        raise StartupError(
            f"{section}.client_ca_file: {tls.client_ca_file} cannot be used: {error}; it is a "
            "PEM file of certificates"
        ) from error
    context.verify_mode = ssl.CERT_REQUIRED if tls.client_auth == "required" else ssl.CERT_OPTIONAL
