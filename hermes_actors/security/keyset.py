"""A JSON Web Key Set (RFC 7517) as the keys that may verify a token. Pure.

PyJWT reads the set and leaves out keys that it cannot use. A key verifies with the algorithms of
its kind only: a token's header cannot turn an RSA key into an HMAC secret.
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
    """One key. `key_id` is "" when the set gives none."""

    key_id: str
    algorithms: tuple[str, ...]
    material: Any

    def __repr__(self) -> str:
        return f"Key({self.key_id!r})"


class KeySet:
    """Keys to verify with, found by what a token's header says."""

    def __init__(self, keys: list[VerificationKey]) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    def candidates(self, key_id: str | None, algorithm: str) -> list[VerificationKey]:
        """The keys that may have signed a token of this header; without an id a few are tried."""
        fitting = [each for each in self._keys if algorithm in each.algorithms]
        if key_id is None:
            return fitting[:_WITHOUT_ID_MAX]
        return [each for each in fitting if each.key_id == key_id]


NO_KEYS = KeySet([])


def parse_key_set(content: bytes) -> KeySet:
    """The usable keys. Raises WrongFile for content that is no key set or holds no usable key."""
    try:
        found = jwt.PyJWKSet.from_json(content.decode()).keys
    # Beside its own errors PyJWT lets those of broken sets and keys through.
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise WrongFile("is no JSON Web Key Set with a key that verifies signatures") from None
    if len(found) > KEYS_MAX:
        raise WrongFile(f"holds {len(found)} keys; at most {KEYS_MAX} are taken")
    usable = [_usable(each) for each in found if each.public_key_use in (None, "sig")]
    if not usable:
        raise WrongFile("holds no key that verifies signatures, only others (use)")
    return KeySet(usable)


def _usable(key: jwt.PyJWK) -> VerificationKey:
    # PyJWT gives each key one algorithm, its own or the first of its kind.
    algorithms = _OF_KIND.get(key.algorithm_name[:2], (key.algorithm_name,))
    # A set that holds private keys is a mistake elsewhere; here nothing is ever signed.
    material = key.key.public_key() if hasattr(key.key, "public_key") else key.key
    return VerificationKey(key.key_id or "", algorithms, material)
