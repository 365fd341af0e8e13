"""Parses a JSON Web Key Set (RFC 7517) and finds the keys for a token. Pure.

PyJWT parses the set, without keys that it cannot use. A key is used with the algorithms of its kind
only, so a token's header cannot turn an RSA key into an HMAC secret.
"""

from typing import Any

import jwt
from msgspec import Struct

from hermes_actors.security.users import WrongFile

KEYS_MAX = 64
_WITHOUT_ID_MAX = 8
_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_OF_KIND = {"RS": _RSA, "PS": _RSA, "HS": ("HS256", "HS384", "HS512")}


class VerificationKey(Struct, frozen=True):
    """One key. `key_id` is empty if the set has none."""

    key_id: str
    algorithms: tuple[str, ...]
    material: Any

    def __repr__(self) -> str:
        return f"Key({self.key_id!r})"


class KeySet:
    """The keys that verify tokens, looked up by a token's header."""

    def __init__(self, keys: list[VerificationKey]) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    def candidates(self, key_id: str | None, algorithm: str) -> list[VerificationKey]:
        """The keys that may have signed a token with this header: without an id, the first few."""
        fitting = [each for each in self._keys if algorithm in each.algorithms]
        if key_id is None:
            return fitting[:_WITHOUT_ID_MAX]
        return [each for each in fitting if each.key_id == key_id]


NO_KEYS = KeySet([])


def parse_key_set(content: bytes) -> KeySet:
    """Parse a key set. Raises WrongFile if it is not one, or has no usable key."""
    try:
        found = jwt.PyJWKSet.from_json(content.decode()).keys
    # For broken sets and keys PyJWT raises more than its own errors.
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise WrongFile("is no JSON Web Key Set with a key that verifies signatures") from None
    if len(found) > KEYS_MAX:
        raise WrongFile(f"holds {len(found)} keys; at most {KEYS_MAX} are allowed")
    usable = [_usable(each) for each in found if each.public_key_use in (None, "sig")]
    if not usable:
        raise WrongFile("holds no key that verifies signatures, only others (use)")
    return KeySet(usable)


def _usable(key: jwt.PyJWK) -> VerificationKey:
    # PyJWT gives each key only one algorithm: its own or the first of its kind.
    algorithms = _OF_KIND.get(key.algorithm_name[:2], (key.algorithm_name,))
    # If the set has private keys by mistake, keep only their public parts.
    material = key.key.public_key() if hasattr(key.key, "public_key") else key.key
    return VerificationKey(key.key_id or "", algorithms, material)
