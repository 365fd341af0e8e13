"""What OpenSSL and HTTP parsers write becomes a cause with a way out."""

import socket
import ssl
from collections.abc import Callable

import pytest

from hermes_actors.runtime.network_causes import PUSHES, name_cause, not_http_cause, tls_cause


def failure(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, "as OpenSSL writes it (_ssl.c:1006)")
    error.reason = reason
    return error


def untrusted(code: int, message: str) -> ssl.SSLError:
    error = ssl.SSLCertVerificationError(1, "as OpenSSL writes it (_ssl.c:1006)")
    error.verify_code, error.verify_message = code, message
    return error


def behind(error: BaseException) -> Exception:
    """As libraries put the first error behind their own."""
    outer = OSError("connection failed")
    outer.__cause__ = error
    return outer


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (failure("WRONG_VERSION_NUMBER"), "speaks plain HTTP"),
        (failure("RECORD_LAYER_FAILURE"), "speaks plain HTTP"),
        (
            untrusted(18, "self-signed certificate"),
            "(self-signed certificate): name the file of the authority that signed it in consumers",
        ),
        (untrusted(10, "certificate has expired"), "it has to be renewed"),
        (untrusted(62, "Hostname mismatch"), "use a name from the certificate"),
        (failure("TLSV13_ALERT_CERTIFICATE_REQUIRED"), "see consumers.tls.certificate_file"),
        (failure("TLSV1_ALERT_PROTOCOL_VERSION"), "1.2 or newer"),
        (failure("UNEXPECTED_EOF_WHILE_READING"), "while TLS began"),
        (failure("NEW_KIND_OF_ERROR"), "TLS fails (new kind of error)"),
    ],
)
@pytest.mark.parametrize("wrap", [lambda error: error, behind], ids=["itself", "behind another"])
def test_a_failure_of_tls_is_told_in_words_with_a_way_out(
    error: ssl.SSLError, said: str, wrap: Callable[[Exception], Exception]
) -> None:
    told = tls_cause(wrap(error), PUSHES)
    assert said in told
    assert "_ssl.c" not in told


def test_what_is_no_failure_of_tls_is_left_to_others() -> None:
    assert tls_cause(ConnectionRefusedError(111, "Connection refused"), PUSHES) == ""


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x15\x03\x03\x00\x02\x02\x46", "this port speaks TLS"),
        (b"SSH-2.0-OpenSSH_9\r\n", "does not speak HTTP/1.1 (Expected HTTP/): is it the right"),
    ],
)
def test_what_is_no_http_is_told_in_words_with_a_way_out(data: bytes, said: str) -> None:
    assert said in not_http_cause(data, "Expected HTTP/")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (socket.EAI_NONAME, "is not known: is it spelled right, and is it in this node's DNS?"),
        (socket.EAI_NODATA, "is not known: is it spelled right, and is it in this node's DNS?"),
        (socket.EAI_AGAIN, "cannot be looked up now: the name server does not answer"),
        (socket.EAI_FAIL, "cannot be looked up: broken"),
    ],
)
def test_a_name_without_an_address_is_told_in_words(code: int, said: str) -> None:
    assert name_cause(socket.gaierror(code, "broken")) == f"its name {said}"
