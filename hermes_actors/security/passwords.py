"""Passwords: hashed with argon2id, checked in the node's workers, and remembered as digests."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import argon2

from hermes_actors.errors import HermesError
from hermes_actors.runtime.workers import Job, WorkerPool

REMEMBERED_MAX = 10_000
_CPU_S_MAX = 10.0
_DIGEST_BYTES = 32
_DUMMY_SALT = "AAAAAAAAAAAAAAAAAAAAAA"
_DUMMY_HASH = "A" * 43


def hash_password(password: str) -> str:
    """The argon2id hash of a password with a new salt, in argon2's text form."""
    return argon2.PasswordHasher().hash(password)


def is_hash(text: str) -> bool:
    """True for an argon2 hash in its text form, as `hash_password` makes it."""
    try:
        argon2.extract_parameters(text)
    except argon2.exceptions.InvalidHashError:
        return False
    return text.isascii()


def costliest(hashes: list[str]) -> str:
    """A hash that no password matches. Checking it costs as much as the costliest of these."""
    default = argon2.PasswordHasher()
    cost = (default.memory_cost, default.time_cost, default.parallelism)
    found = [argon2.extract_parameters(each) for each in hashes]
    if found:
        most = max(found, key=lambda each: each.memory_cost * each.time_cost)
        cost = (most.memory_cost, most.time_cost, most.parallelism)
    memory, time, parallelism = cost
    return f"$argon2id$v=19$m={memory},t={time},p={parallelism}${_DUMMY_SALT}${_DUMMY_HASH}"


class PasswordChecks:
    """Checks passwords in a pool of workers. May be awaited on either loop.

    Correct passwords are remembered as digests keyed with `secret`, which must be random.
    """

    def __init__(self, secret: bytes, pool: WorkerPool) -> None:
        self._secret = hashlib.blake2b(secret, digest_size=_DIGEST_BYTES).digest()
        self._pool = pool
        self._right: OrderedDict[bytes, None] = OrderedDict()
        # Clients that start together send the same password many times: check it once.
        self._waiting: dict[bytes, list[Callable[[Any], None]]] = {}
        self.checks = 0

    async def is_right(self, hashed: str, password: str) -> bool:
        """True if the password matches the hash. Raises Unavailable if too many checks wait."""
        text = password.encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(
            hashed.encode() + b"\0" + text, digest_size=_DIGEST_BYTES, key=self._secret
        ).digest()
        if digest in self._right:
            self._right.move_to_end(digest)
            return True
        ended = anyio.Event()
        results: list[Any] = []

        def done(result: Any) -> None:
            results.append(result)
            ended.set()

        if digest in self._waiting:
            self._waiting[digest].append(done)
        else:
            self._waiting[digest] = [done]
            self.checks += 1
            told = partial(self._checked, digest)
            self._pool.submit(Job("passwords", _CPU_S_MAX, verify, (hashed, text), told))
        await ended.wait()
        if isinstance(results[0], HermesError):
            raise results[0]
        return bool(results[0])

    def _checked(self, digest: bytes, result: Any) -> None:
        if result is True:
            self._right[digest] = None
            if len(self._right) > REMEMBERED_MAX:
                self._right.popitem(last=False)
        for done in self._waiting.pop(digest):
            done(result)


def verify(hashed: str, password: bytes) -> bool:
    """True if the password matches the hash. Takes tens of milliseconds by design."""
    try:
        return argon2.PasswordHasher().verify(hashed, password)
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        return False
