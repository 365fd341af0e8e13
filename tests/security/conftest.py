"""Users, tokens and clocks for security tests; hashes are deliberately cheap."""

import base64
import json
from typing import Any

import argon2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from hermes_actors.security.account import Credentials
from hermes_chaos.sim.environment.clock import SimulatedClock

EPOCH_S = 1_700_000_000
ISSUER = "https://id.example.com"
AUDIENCE = "hermes"


def cheap_hash(password: str) -> str:
    return argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(password)


def basic(name: str, password: str) -> Credentials:
    text = base64.b64encode(f"{name}:{password}".encode()).decode()
    return Credentials(f"Basic {text}")


class Signer:
    """An identity provider: keys by id, their public set, and tokens signed with them."""

    def __init__(self) -> None:
        self.keys: dict[str, tuple[Any, str]] = {}
        self.add("rsa", rsa.generate_private_key(public_exponent=65_537, key_size=2_048), "RS256")
        self.add("ec", ec.generate_private_key(ec.SECP256R1()), "ES256")
        self.add("ed", ed25519.Ed25519PrivateKey.generate(), "EdDSA")

    def add(self, key_id: str, key: Any, algorithm: str) -> None:
        self.keys[key_id] = (key, algorithm)

    def jwk(self, key_id: str, **fields: Any) -> dict[str, Any]:
        key, algorithm = self.keys[key_id]
        found = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
        # The library lists key operations; most providers do not.
        found.pop("key_ops", None)
        return {**found, "kid": key_id, **fields}

    def key_set(self, *key_ids: str) -> bytes:
        return json.dumps({"keys": [self.jwk(each) for each in key_ids or self.keys]}).encode()

    def claims(self, **claims: Any) -> dict[str, Any]:
        found = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": "shop-app",
            "exp": EPOCH_S + 600,
            "roles": ["PUBLISHER"],
            "groups": ["sales"],
            **claims,
        }
        return {name: value for name, value in found.items() if value is not None}

    def token(self, key_id: str = "ec", *, header: Any = None, alg: str = "", **claims: Any) -> str:
        key, algorithm = self.keys[key_id]
        headers = {"kid": key_id} if header is None else header
        return jwt.encode(self.claims(**claims), key, algorithm=alg or algorithm, headers=headers)

    def payload_with(self, name: str, text: str) -> bytes:
        """The claims with one written as this text, which need not be JSON."""
        rest = json.dumps({each: v for each, v in self.claims().items() if each != name})
        return f'{{"{name}":{text},{rest[1:]}'.encode()

    def token_of(self, payload: bytes, key_id: str = "ec") -> str:
        """A token signed over exactly these bytes."""
        key, algorithm = self.keys[key_id]
        return jwt.PyJWS().encode(payload, key, algorithm=algorithm, headers={"kid": key_id})


@pytest.fixture(scope="session")
def signer() -> Signer:
    return Signer()


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture(name="cheap_hash")
def cheap_hash_fixture():
    return cheap_hash


@pytest.fixture(name="basic")
def basic_fixture():
    return basic
