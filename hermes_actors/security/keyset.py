"""A JSON Web Key Set (RFC 7517) as the keys that may verify a token. Pure.

A key verifies with the algorithms of its kind only: what a token's header says cannot turn an RSA
key into an HMAC secret. A key that cannot be used is left out.
"""

from collections.abc import Mapping
from typing import Any

import jwt
import msgspec
from msgspec import Struct

from hermes_actors.security.users import WrongFile

KEYS_MAX = 64
_WITHOUT_ID_MAX = 8
_ALGORITHMS = {
    ("RSA", ""): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
    ("oct", ""): ("HS256", "HS384", "HS512"),
}


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
    """The usable keys. Raises WrongFile for what is no key set or holds no usable key."""
    try:
        found = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WrongFile("is not JSON; a JSON Web Key Set is wanted") from error
    keys = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(keys, list):
        raise WrongFile('has no list "keys"; a JSON Web Key Set is wanted')
    if len(keys) > KEYS_MAX:
        raise WrongFile(f"holds {len(keys)} keys; at most {KEYS_MAX} are taken")
    usable = [key for each in keys if isinstance(each, dict) and (key := _key(each)) is not None]
    if not usable:
        raise WrongFile(
            "holds no key that verifies signatures: RSA, EC (P-256, P-384, P-521), Ed25519 or oct"
        )
    return KeySet(usable)


def _key(jwk: Mapping[str, Any]) -> VerificationKey | None:
    kind, curve = jwk.get("kty"), jwk.get("crv", "")
    operations = jwk.get("key_ops", ["verify"])
    if jwk.get("use", "sig") != "sig" or not isinstance(operations, list):
        return None
    if "verify" not in operations:
        return None
    if not isinstance(kind, str) or not isinstance(curve, str):
        return None
    algorithms = _ALGORITHMS.get((kind, curve), ())
    if "alg" in jwk:
        algorithms = tuple(each for each in algorithms if each == jwk["alg"])
    if not algorithms:
        return None
    key_id = jwk.get("kid", "")
    try:
        material = jwt.get_algorithm_by_name(algorithms[0]).from_jwk(dict(jwk))
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, NotImplementedError):
        return None
    if hasattr(material, "public_key"):
        # A set that holds private keys is a mistake elsewhere; here nothing is ever signed.
        material = material.public_key()
    return VerificationKey(key_id if isinstance(key_id, str) else "", algorithms, material)
