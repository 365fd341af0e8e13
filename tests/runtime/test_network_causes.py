"""What OpenSSL and HTTP parsers write becomes a cause with a way out."""

import socket
import ssl
from collections.abc import Callable

import pytest

from hermes_actors.runtime.network_causes import PUSHES, name_cause, not_http_cause, tls_cause

UNTRUSTED = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: "


def behind(error: BaseException) -> Exception:
    """As libraries put the first error behind their own."""
    outer = OSError("connection failed")
    outer.__cause__ = error
    return outer


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)", "speaks plain HTTP"),
        ("[SSL: RECORD_LAYER_FAILURE] record layer failure (_ssl.c:1)", "speaks plain HTTP"),
        (
            UNTRUSTED + "self-signed certificate (_ssl.c:1006)",
            "(self-signed certificate): name the file of the authority that signed it in consumers",
        ),
        (
            UNTRUSTED + "certificate has expired (_ssl.c:1006)",
            "it has to be renewed",
        ),
        (
            UNTRUSTED + "Hostname mismatch, certificate is not valid for 'a.test'. (_ssl.c:1006)",
            "use a name that stands in the certificate",
        ),
        (
            "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required (_ssl.c:1)",
            "see consumers.tls.certificate_file",
        ),
        ("[SSL: TLSV1_ALERT_PROTOCOL_VERSION] tlsv1 alert protocol version (_ssl.c:1)", "1.2 or"),
        ("[SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred (_ssl.c:1)", "while TLS began"),
        ("[SSL: NEW_KIND_OF_ERROR] new kind of error (_ssl.c:1)", "TLS fails (new kind of error)"),
    ],
)
@pytest.mark.parametrize("wrap", [lambda error: error, behind], ids=["itself", "behind another"])
def test_a_failure_of_tls_is_told_in_words_with_a_way_out(
    text: str, said: str, wrap: Callable[[Exception], Exception]
) -> None:
    told = tls_cause(wrap(ssl.SSLError(1, text)), PUSHES)
    assert said in told
    assert "_ssl.c" not in told
    assert "[SSL" not in told


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
