"""Passwords: hashed by argon2id, checked in a few threads, and found again without their text.

A check takes tens of milliseconds by design. So it runs in a thread, few at a time, with a bounded
queue; a password that was right is remembered as a digest under a key that only this process has.
"""

import hashlib
import threading
from collections import OrderedDict

import anyio
import anyio.to_thread
import argon2
import sniffio

from hermes_actors.errors import Unavailable

_DIGEST_BYTES = 32
_DUMMY_SALT = "AAAAAAAAAAAAAAAAAAAAAA"
_DUMMY_HASH = "A" * 43


def hash_password(password: str) -> str:
    """The argon2id hash of a password, with a salt of its own, in argon2's text form."""
    return argon2.PasswordHasher().hash(password)


def is_hash(text: str) -> bool:
    """True for an argon2 hash in its text form, as `hash_password` makes it."""
    try:
        argon2.extract_parameters(text)
    except argon2.exceptions.InvalidHashError:
        return False
    return text.isascii()


def costliest(hashes: list[str]) -> str:
    """A hash that no password has, as costly to check as the costliest of these."""
    default = argon2.PasswordHasher()
    cost = (default.memory_cost, default.time_cost, default.parallelism)
    found = [argon2.extract_parameters(each) for each in hashes]
    if found:
        most = max(found, key=lambda each: each.memory_cost * each.time_cost)
        cost = (most.memory_cost, most.time_cost, most.parallelism)
    memory, time, parallelism = cost
    return f"$argon2id$v=19$m={memory},t={time},p={parallelism}${_DUMMY_SALT}${_DUMMY_HASH}"


class _Check:
    """One check under way, and what came of it; None while it is, or when it was cancelled.

    `is_in_thread`: a thread computes it, whoever waits for it or does not.
    """

    def __init__(self) -> None:
        self.ended = anyio.Event()
        self.is_right: bool | None = None
        self.is_in_thread = False


class PasswordChecks:
    """Checks passwords against hashes, on either loop.

    At most `running_max` at a time on each loop, `waiting_max` altogether; `remembered_max` right
    ones are remembered. `secret` is some random bytes.
    """

    def __init__(
        self, secret: bytes, *, running_max: int, waiting_max: int, remembered_max: int
    ) -> None:
        self._secret = hashlib.blake2b(secret, digest_size=_DIGEST_BYTES).digest()
        self._running_max = running_max
        self._waiting_max = waiting_max
        self._remembered_max = remembered_max
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._under_way: dict[tuple[str, bytes], _Check] = {}
        self._limiters: dict[str, anyio.CapacityLimiter] = {}
        self._turns: dict[str, threading.Semaphore] = {}
        self._left: set[_Check] = set()
        self._left_lock = threading.Lock()
        self.checks = 0

    @property
    def waiting(self) -> int:
        """How many checks wait or are under way, those included that nobody waits for any more."""
        return len(self._under_way) + len(self._left)

    async def is_right(self, hashed: str, password: str) -> bool:
        """True when the password has this hash. Raises Unavailable when too many checks wait."""
        digest = hashlib.blake2b(
            f"{hashed}\0{password}".encode("utf-8", "surrogatepass"),
            digest_size=_DIGEST_BYTES,
            key=self._secret,
        ).digest()
        loop = sniffio.current_async_library()
        while True:
            if digest in self._right:
                self._right.move_to_end(digest)
                return True
            check = self._under_way.get((loop, digest))
            if check is None:
                return await self._check(loop, digest, hashed, password)
            # A fleet that starts brings the same password many times at once.
            await check.ended.wait()
            if check.is_right is not None:
                return check.is_right

    async def _check(self, loop: str, digest: bytes, hashed: str, password: str) -> bool:
        if self.waiting >= self._waiting_max:
            raise Unavailable("Too many passwords are being checked; try again")
        if loop not in self._limiters:
            self._limiters[loop] = anyio.CapacityLimiter(self._running_max)
            self._turns[loop] = threading.Semaphore(self._running_max)
        check = self._under_way[loop, digest] = _Check()
        try:
            self.checks += 1
            check.is_right = await anyio.to_thread.run_sync(
                self._in_thread,
                self._turns[loop],
                check,
                hashed,
                password,
                limiter=self._limiters[loop],
            )
        finally:
            del self._under_way[loop, digest]
            # A cancelled asyncio task goes at once and gives its place back, while its thread goes
            # on: who only asks and leaves must not have any number of threads at work.
            with self._left_lock:
                if check.is_in_thread:
                    self._left.add(check)
            check.ended.set()
        if check.is_right:
            self._right[digest] = None
            if len(self._right) > self._remembered_max:
                self._right.popitem(last=False)
        return check.is_right

    def _in_thread(
        self, turns: threading.Semaphore, check: _Check, hashed: str, password: str
    ) -> bool:
        check.is_in_thread = True
        try:
            with turns:
                return _verify(hashed, password)
        finally:
            with self._left_lock:
                check.is_in_thread = False
                self._left.discard(check)


def _verify(hashed: str, password: str) -> bool:
    try:
        return argon2.PasswordHasher().verify(hashed, password.encode("utf-8", "surrogatepass"))
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        return False
