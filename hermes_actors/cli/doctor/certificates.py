"""Certificates: when they end, and which one a port serves."""

import socket
import ssl
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

from hermes_actors.cli.doctor.findings import Finding, odd, well, wrong
from hermes_actors.model.moments import span

_RENEWED_BEFORE_S = 14 * 86_400


def of_file(path: str, *, is_authority: bool = False) -> x509.Certificate:
    """The certificate of a PEM file that ends first; of authorities the one that ends last.

    Raises OSError and ValueError.
    """
    found = x509.load_pem_x509_certificates(Path(path).read_bytes())
    pick = max if is_authority else min
    return pick(found, key=lambda each: each.not_valid_after_utc)


def served_at(host: str, port: int, timeout_s: float) -> x509.Certificate:
    """The certificate that a TLS port shows. Blocks; raises OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # It is looked at whoever has signed it.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        socket.create_connection((host, port), timeout_s) as plain,
        context.wrap_socket(plain) as secured,
    ):
        shown = secured.getpeercert(binary_form=True)
        assert shown is not None, "a server always shows one"
        return x509.load_der_x509_certificate(shown)


def judged(check: str, about: str, shown: x509.Certificate, now_ms: int) -> Finding:
    """Whether a certificate is valid now, and for how long yet."""
    now = datetime.fromtimestamp(now_ms / 1_000, UTC)
    if now < shown.not_valid_before_utc:
        seen = f"valid only from {shown.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
        return wrong(check, about, seen, "set this machine's clock right, or wait")
    left_s = (shown.not_valid_after_utc - now).total_seconds()
    if left_s <= 0:
        return wrong(check, about, f"expired {span(-left_s)} ago", "renew it")
    seen = f"valid for another {span(left_s)}"
    if left_s < _RENEWED_BEFORE_S:
        return odd(check, about, seen, "renew it")
    return well(check, about, seen)
