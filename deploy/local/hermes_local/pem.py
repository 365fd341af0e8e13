"""Private keys in the only PEM form that Kafka reads, PKCS #8. Pure."""

import base64
import re

from hermes_local.failures import LaunchFailed

_BLOCK = re.compile(r"-----BEGIN ([A-Z ]+)-----(.*?)-----END \1-----", re.DOTALL)
_RSA = bytes.fromhex("06092a864886f70d0101010500")  # 1.2.840.113549.1.1.1, and its NULL
_EC = bytes.fromhex("06072a8648ce3d0201")  # 1.2.840.10045.2.1
_SEQUENCE, _INTEGER, _OCTETS, _CURVE = 0x30, 0x02, 0x04, 0xA0


def pkcs8(pem: str) -> str:
    """The first private key of `pem` as a BEGIN PRIVATE KEY block.

    Takes PKCS #8 as it is, and wraps PKCS #1 (RSA) and SEC 1 (EC) keys as RFC 5208 and RFC 5915
    say. Raises LaunchFailed for anything else, such as an encrypted key.
    """
    keys = [match for match in _BLOCK.finditer(pem) if match[1].endswith("PRIVATE KEY")]
    if not keys:
        raise LaunchFailed("key.pem: it holds no private key in PEM form")
    kind, text = keys[0][1], keys[0][2]
    if kind == "PRIVATE KEY":
        return keys[0][0] + "\n"
    if kind not in ("RSA PRIVATE KEY", "EC PRIVATE KEY") or "ENCRYPTED" in text:
        raise LaunchFailed(f"key.pem: a {kind} that is encrypted or unknown; give a plain key")
    key = base64.b64decode("".join(text.split()))
    algorithm = _RSA if kind == "RSA PRIVATE KEY" else _EC + _curve_of(key)
    version = _element(_INTEGER, b"\0")
    whole = _element(_SEQUENCE, version + _element(_SEQUENCE, algorithm) + _element(_OCTETS, key))
    encoded = base64.b64encode(whole).decode()
    lines = [encoded[at : at + 64] for at in range(0, len(encoded), 64)]
    return "\n".join(["-----BEGIN PRIVATE KEY-----", *lines, "-----END PRIVATE KEY-----", ""])


def _curve_of(key: bytes) -> bytes:
    """The curve's identifier in an ECPrivateKey, which PKCS #8 wants outside of it."""
    _, inner, _ = _parse(key)
    while inner:
        tag, content, inner = _parse(inner)
        if tag == _CURVE:
            return content
    raise LaunchFailed("key.pem: the EC key does not name its curve")


def _element(tag: int, content: bytes) -> bytes:
    """DER: tag, length, content."""
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def _parse(data: bytes) -> tuple[int, bytes, bytes]:
    """The first element's tag and content, and what follows it."""
    try:
        size, at = data[1], 2
        if size & 0x80:
            at += size & 0x7F
            size = int.from_bytes(data[2:at], "big")
        content = data[at : at + size]
        if len(content) != size:
            raise LaunchFailed("key.pem: the key ends too early")
        return data[0], content, data[at + size :]
    except IndexError:
        raise LaunchFailed("key.pem: the key ends too early") from None
