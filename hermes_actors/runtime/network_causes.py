"""Explains why a connection failed, and what to do, instead of the libraries' messages. Pure."""

import re
import socket
import ssl

from msgspec import Struct

# OpenSSL's names of reasons, as in `ssl.SSLError.reason`.
_PLAIN = frozenset(
    {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG"}
    | {"RECORD_LAYER_FAILURE"}
)
_ASKS_WHO_WE_ARE = re.compile(
    r"CERTIFICATE_REQUIRED|ALERT_(UNKNOWN_CA|BAD_CERTIFICATE|CERTIFICATE|HANDSHAKE_FAILURE)"
)
_NOTHING_IN_COMMON = re.compile(r"PROTOCOL_VERSION|UNSUPPORTED_PROTOCOL|NO_SHARED_CIPHER")
_PEM = {
    "KEY_VALUES_MISMATCH": "the key is not the certificate's",
    "NO_CERTIFICATE_OR_CRL_FOUND": "it holds no certificate in PEM form",
}

# OpenSSL's codes for problems of a certificate.
_NOT_YET_VALID, _EXPIRED, _OTHER_HOST, _OTHER_ADDRESS = 9, 10, 62, 64

# Where C libraries distinguish them, the second one means that the name has other records.
_NO_SUCH_NAME = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))


class TlsSettings(Struct, frozen=True):
    """The names of the settings for one kind of connection: the file of trusted authorities, and
    the own certificate.
    """

    authorities: str
    certificate: str


PUSHES = TlsSettings("consumers.tls.ca_file", "consumers.tls.certificate_file")
"""The settings for connections to endpoints."""


def tls_cause(error: BaseException, settings: TlsSettings) -> str:
    """Why TLS failed and what to do, from the error or its causes; empty string if it was not
    TLS.
    """
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, ssl.SSLError):
        seen = seen.__cause__ or seen.__context__
    if seen is None:
        return ""
    if isinstance(seen, ssl.SSLCertVerificationError):
        return _untrusted(seen, settings)
    return _failed(seen.reason or "", settings)


def name_cause(error: socket.gaierror) -> str:
    """Why a host's name has no address, and what to check."""
    if error.errno in _NO_SUCH_NAME:
        return "its name is not known: is it spelled right, and is it in this node's DNS?"
    if error.errno == socket.EAI_AGAIN:
        return "its name cannot be looked up now: the name server does not answer"
    return f"its name cannot be looked up: {error.strerror or error}"


def pem_cause(error: Exception) -> str:
    """Why files of certificates and keys cannot be used."""
    if isinstance(error, ssl.SSLError):
        missing = "a file holds no certificate or key in PEM form, or the key has a password"
        return _PEM.get(error.reason or "", missing)
    return getattr(error, "strerror", None) or str(error)


def not_http_cause(data: bytes, problem: str) -> str:
    """Why these bytes are not an HTTP/1.1 answer; `problem` is the parser's message."""
    if data[:2] == b"\x15\x03":
        return "this port speaks TLS, and the request was in plain text: write https:// for http://"
    return f"what answers at this port does not speak HTTP/1.1 ({problem}): is it the right port?"


def _untrusted(error: ssl.SSLCertVerificationError, settings: TlsSettings) -> str:
    said = f"its certificate is not accepted ({error.verify_message})"
    if error.verify_code in (_OTHER_HOST, _OTHER_ADDRESS):
        return f"{said}: use a name from the certificate"
    if error.verify_code in (_NOT_YET_VALID, _EXPIRED):
        return f"{said}: it has to be renewed, or a clock is wrong"
    return f"{said}: name the file of the authority that signed it in {settings.authorities}"


def _failed(reason: str, settings: TlsSettings) -> str:
    if reason in _PLAIN:
        return (
            "this port speaks plain HTTP, or something else that is not TLS: write http:// for "
            "https://, or use the TLS port"
        )
    if _ASKS_WHO_WE_ARE.search(reason):
        return f"it does not accept the certificate shown to it, or wants one: {_own(settings)}"
    if _NOTHING_IN_COMMON.search(reason):
        return "the two sides have no version of TLS or no cipher in common; 1.2 or newer is needed"
    if not reason or "EOF" in reason:
        return (
            f"it ended the connection while TLS began; it may want a certificate: {_own(settings)}"
        )
    return f"TLS fails ({reason.replace('_', ' ').lower()})"


def _own(settings: TlsSettings) -> str:
    return f"see {settings.certificate}"
