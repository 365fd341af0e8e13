"""Makes changes to the metadata. A change is decided on the folded catalog, and has preconditions
that reject it if the catalog has changed meanwhile.

A rejected change is decided again on the new state, so the caller gets the correct error.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from msgspec import Struct

from hermes_actors.errors import Unavailable
from hermes_actors.metadata.commands import (
    Absent,
    Accepted,
    Change,
    ChangeOutcome,
    StampIs,
    delete,
    put,
)
from hermes_actors.metadata.registry import Metadata

ATTEMPTS_MAX = 10

T = TypeVar("T")


class Made(Struct, frozen=True):
    """An accepted change: the key's body before and after it; None if it was or is not alive."""

    key: str
    before: bytes | None
    after: bytes | None


_made: ContextVar[list[Made] | None] = ContextVar("made", default=None)


@contextmanager
def recorded() -> Iterator[list[Made]]:
    """Collect all changes that this task makes inside the block."""
    made: list[Made] = []
    token = _made.set(made)
    try:
        yield made
    finally:
        _made.reset(token)


class Changes:
    """Makes changes to one datacentre's metadata, each within `timeout_s`."""

    def __init__(self, metadata: Metadata, timeout_s: float) -> None:
        self._metadata = metadata
        self._timeout_s = timeout_s

    def require_current(self) -> None:
        """Raises Unavailable while the catalog is not current, which the rules depend on."""
        health = self._metadata.health
        if not health.is_current:
            raise Unavailable(f"The metadata cannot be changed now: {health.reason}; try again")

    async def attempt(self, change: Change) -> ChangeOutcome:
        """Make the change once. Returns Accepted, or Rejected if a precondition does not hold.

        A trio coroutine. Raises Unavailable (which may mean that the outcome is unknown) and
        Refused (too large).
        """
        old = self._metadata.register(change.key)
        outcome = await self._metadata.change(change, timeout_s=self._timeout_s)
        made = _made.get()
        if made is not None and isinstance(outcome, Accepted):
            made.append(Made(change.key, None if old is None else old.body, change.body))
        return outcome

    async def make(self, decide: Callable[[], Change | None]) -> None:
        """Make the change that `decide` returns (None: no change). It is called again each time the
        change is rejected.

        A trio coroutine. Raises the errors of `decide` and `attempt`.
        """
        for _ in range(ATTEMPTS_MAX):
            self.require_current()
            change = decide()
            if change is None or isinstance(await self.attempt(change), Accepted):
                return
        raise contended()

    async def store(
        self, key: str, body: bytes | None, is_kept: Callable[[], bool] = lambda: False
    ) -> bool:
        """Store a body under a key of `Catalog.others`, or delete it (None). If the key has a body
        and `is_kept()`, nothing changes. Returns True if the key had a body. Raises as `make`.
        """
        was_there = False

        def decide() -> Change | None:
            nonlocal was_there
            register = self._metadata.catalog.others.get(key)
            was_there = register is not None
            if register is None:
                return None if body is None else put(key, body, Absent(key))
            is_same = StampIs(key, register.stamp)
            if body is None:
                return delete(key, is_same)
            return None if is_kept() else put(key, body, is_same)

        await self.make(decide)
        return was_there


def contended() -> Unavailable:
    """The error after ATTEMPTS_MAX rejections."""
    return Unavailable("Other changes of the same object kept coming first; try again")
