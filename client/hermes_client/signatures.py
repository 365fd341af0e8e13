"""Checks that a request comes from the broker: signatures of Standard Webhooks 1.0."""

import base64
import hmac
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from hermes_client.errors import SignatureInvalid

_TIMESTAMP = re.compile(r"[0-9]{1,12}")

_Check = Callable[[bytes, str], bool]


class Verifier:
    """Checks requests with one secret, or with several while a secret is changed.

    A secret is `whsec_…` (HMAC-SHA256, signatures `v1`) or `whpk_…` with the public key of Ed25519
    (signatures `v1a`; needs `pip install hermes_client[ed25519]`). Raises ValueError for another.
    """

    def __init__(self, secrets: str | Sequence[str], *, tolerance_s: float = 300.0) -> None:
        self._tolerance_s = tolerance_s
        self._checks = [_check_of(s) for s in ([secrets] if isinstance(secrets, str) else secrets)]
        if not self._checks:
            raise ValueError("no secret; give the subscription's")

    def verify(self, headers: Mapping[str, str], body: bytes, *, now_s: float | None = None) -> str:
        """Return the verified `webhook-id`. Raises SignatureInvalid.

        `now_s` is the Unix time, by default this machine's. Requests that are older or newer by
        more than the tolerance are refused.
        """
        fields = {name.lower(): value for name, value in headers.items()}
        try:
            request_id, timestamp = fields["webhook-id"], fields["webhook-timestamp"]
            signatures = fields["webhook-signature"].split(" ")
        except KeyError as error:
            raise SignatureInvalid(f"no signature: the header {error.args[0]} is missing") from None
        if not _TIMESTAMP.fullmatch(timestamp):
            raise SignatureInvalid("webhook-timestamp is not a time in seconds")
        age_s = (time.time() if now_s is None else now_s) - int(timestamp)
        if abs(age_s) > self._tolerance_s:
            raise SignatureInvalid(
                f"the request is {age_s:.0f} s old; at most {self._tolerance_s:g} s are allowed"
            )
        signed = f"{request_id}.{timestamp}.".encode() + body
        # Every pair is tried, so the time does not show which one fits.
        found = [check(signed, each) for check in self._checks for each in signatures[:20]]
        if not any(found):
            raise SignatureInvalid("wrong signature: none fits the secret")
        return request_id


def _check_of(secret: str) -> _Check:
    kind, _, text = secret.partition("_")
    with suppress(ValueError):
        key = base64.b64decode(text, validate=True)
        if kind == "whsec" and key:
            return partial(_is_hmac, key)
        if kind == "whpk":
            # Of an extra.
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

            return partial(_is_ed25519, Ed25519PublicKey.from_public_bytes(key))
    raise ValueError("a secret is whsec_ or, for a public key of Ed25519, whpk_, and Base64")


def _is_hmac(key: bytes, signed: bytes, signature: str) -> bool:
    expected = base64.b64encode(hmac.digest(key, signed, "sha256"))
    return hmac.compare_digest(b"v1," + expected, signature.encode())


def _is_ed25519(key: Any, signed: bytes, signature: str) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(base64.b64decode(signature.removeprefix("v1a,"), validate=True), signed)
    except (InvalidSignature, ValueError):
        return False
    return signature.startswith("v1a,")
