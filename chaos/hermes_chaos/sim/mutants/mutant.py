"""The form of a seeded bug: small patches of production classes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from hermes_chaos.sim.world import Shape

SHORT = Shape(messages_per_publisher=5, load_s=1.0, settle_max_s=10.0, strikes=3, rest_rounds=1)
"""Long enough to show most bugs, at half the cost of a whole run."""
WHOLE = Shape()


@dataclass(frozen=True)
class Mutant:
    """One bug. `patches` are (class or module, attribute, replacement). A run with that `shape` and
    `seed` finds it. If the product changes, `hermes chaos mutants --find` finds another seed.
    """

    name: str
    bug: str
    patches: tuple[tuple[type | ModuleType, str, Any], ...]
    seed: int = 1
    shape: Shape = SHORT

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Plant the bug in the product for the duration of the block."""
        before = [(owner, name, owner.__dict__[name]) for owner, name, _ in self.patches]
        try:
            for owner, name, patch in self.patches:
                setattr(owner, name, patch)
            yield
        finally:
            for owner, name, original in before:
                setattr(owner, name, original)
