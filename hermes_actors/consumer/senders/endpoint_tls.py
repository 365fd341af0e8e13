"""TLS towards endpoints: whom this node trusts, and the certificate that it shows itself."""

import ssl
from collections.abc import Sequence

from hermes_actors.config import EndpointTlsConfig
from hermes_actors.errors import StartupError


def endpoint_tls(config: EndpointTlsConfig, *protocols: str) -> ssl.SSLContext:
    """A context that verifies certificates and host names and offers these protocols by ALPN.

    Raises StartupError that names the field of a file which cannot be used.
    """
    try:
        context = ssl.create_default_context(cafile=config.ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise _unusable(
            "ca_file", [config.ca_file], error, "certificates of authorities"
        ) from error
    if config.certificate_file:
        files = [config.certificate_file, config.key_file]
        try:
            context.load_cert_chain(config.certificate_file, config.key_file, _no_password)
        except (OSError, ssl.SSLError) as error:
            what = "a certificate, key_file of its key without a password"
            raise _unusable("certificate_file", files, error, what) from error
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context


def _no_password() -> str:
    # Without this OpenSSL would ask the terminal.
    return ""


def _unusable(name: str, files: Sequence[str], error: Exception, what: str) -> StartupError:
    return StartupError(
        f"consumers.tls.{name}: {' with '.join(files)} cannot be used: {error}; it is a PEM file "
        f"of {what}"
    )
