"""Secrets for signing requests, in the format of Standard Webhooks 1.0; errors never show them.

`whsec_` and Base64 of 24 to 64 bytes is a key for HMAC-SHA256. `whsk_` and Base64 of 32 bytes (or
64, with the public key after them) is a private key for Ed25519.
"""

import base64
import binascii
import hashlib
from collections.abc import Iterable, Iterator
from enum import StrEnum

from msgspec import Struct

from hermes_actors.model.redaction import HIDDEN, redacted
from hermes_actors.runtime.clock import IdSource

SECRETS_MAX = 5
"""Maximum number of secrets of one subscription."""

HMAC_PREFIX = "whsec_"
ED25519_PREFIX = "whsk_"
_HMAC_BYTES = (24, 64)
_ED25519_SEED_BYTES = 32


class SigningScheme(StrEnum):
    """The signature schemes; the value is the prefix of a signature."""

    HMAC_SHA256 = "v1"
    ED25519 = "v1a"


class SigningKey(Struct, frozen=True):
    """A parsed secret. `key` is the HMAC key, or the Ed25519 seed of 32 bytes."""

    scheme: SigningScheme
    key: bytes

    def __repr__(self) -> str:
        return redacted(self, key=HIDDEN)


class BadSecret(ValueError):
    """The secret cannot be used; the message says why, without the secret."""


def parse_secret(secret: str) -> SigningKey:
    """Parse a secret. Raises BadSecret."""
    if secret.startswith(HMAC_PREFIX):
        key = _decoded(secret[len(HMAC_PREFIX) :])
        low, high = _HMAC_BYTES
        if not low <= len(key) <= high:
            raise BadSecret(f"holds {len(key)} bytes; {low} to {high} are needed")
        return SigningKey(SigningScheme.HMAC_SHA256, key)
    if secret.startswith(ED25519_PREFIX):
        key = _decoded(secret[len(ED25519_PREFIX) :])
        if len(key) not in (_ED25519_SEED_BYTES, 2 * _ED25519_SEED_BYTES):
            raise BadSecret(f"holds {len(key)} bytes; a private key of Ed25519 has 32, or 64")
        return SigningKey(SigningScheme.ED25519, key[:_ED25519_SEED_BYTES])
    raise BadSecret(f"must begin with {HMAC_PREFIX} (HMAC-SHA256) or {ED25519_PREFIX} (Ed25519)")


def signing_violations(path: str, secrets: Iterable[str]) -> Iterator[str]:
    """Yield what is wrong with a signing policy's secrets, each with its path."""
    listed = list(secrets)
    if not 1 <= len(listed) <= SECRETS_MAX:
        yield f"{path} size must be between 1 and {SECRETS_MAX}; to sign no more, set signing null"
    for index, secret in enumerate(listed):
        try:
            parse_secret(secret)
        except BadSecret as error:
            yield f"{path}[{index}] {error}"
        if secret in listed[:index]:
            yield f"{path}[{index}] appears twice"


def hmac_secret(key: bytes) -> str:
    """The secret for this key."""
    return HMAC_PREFIX + base64.b64encode(key).decode("ascii")


def new_hmac_secret(ids: IdSource) -> str:
    """Make a random secret for HMAC."""
    # Two ids contain 244 random bits.
    entropy = ids.message_id() + ids.message_id()
    return hmac_secret(hashlib.sha256(entropy.encode()).digest())


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    # ValueError: characters beyond ASCII.
    except (binascii.Error, ValueError):
        # Do not chain: the library's message might contain a part of the secret.
        raise BadSecret("is not Base64 behind its prefix") from None
