"""The form of a seeded bug: small, explicit patches of production classes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from hermes_chaos.sim.world import Shape


@dataclass(frozen=True)
class Mutant:
    """One bug: `patches` are (class or module, attribute, what it becomes). `seed` is the first one
    known to find it, in runs of that `shape`.
    """

    name: str
    bug: str
    patches: tuple[tuple[type | ModuleType, str, Any], ...]
    seed: int = 1
    shape: Shape = field(default_factory=Shape)

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Plant the bug in the product for the length of the block."""
        before = [(owner, name, owner.__dict__[name]) for owner, name, _ in self.patches]
        try:
            for owner, name, patch in self.patches:
                setattr(owner, name, patch)
            yield
        finally:
            for owner, name, original in before:
                setattr(owner, name, original)
