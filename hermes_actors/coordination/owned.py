"""The part of a subscription that a node owns: partitions, epoch, lease and rate share.

The agent makes one for each grant. The consumer checks it immediately before each act that is
visible outside.
"""

from collections.abc import Callable

from msgspec import Struct, field

from hermes_actors.coordination.commands import RateState
from hermes_actors.coordination.lease import Lease
from hermes_actors.runtime.clock import SystemClock


class Unfenced(Lease):
    """The lease of a consumer without coordination: always open."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("", SystemClock())

    def is_open(self) -> bool:
        """True always."""
        return True

    async def wait_opened(self) -> None:
        """Return at once."""


class RateShare:
    """The part of the subscription's maximum rate that one owner may use now, 0 to 1.

    It may change at any time. `on_change` belongs to the latest consumer, and must not wait.
    """

    __slots__ = ("on_change", "value")

    def __init__(self, value: float = 1.0) -> None:
        self.value = value
        self.on_change: Callable[[], None] = _nobody

    def change(self, value: float) -> None:
        """Apply another share at once. 0: nothing is sent until it rises."""
        if value != self.value:
            self.value = value
            self.on_change()


def _nobody() -> None:
    """Used until a consumer is made."""


class Owned(Struct, frozen=True):
    """The partitions that one consumer consumes, with the lease and epoch of its ownership. The
    default is for a consumer without coordination.

    `partitions` None: all, including partitions added later. `epoch` is that of the grant. `rate`
    is what the previous owner had learnt about the endpoint; None if unknown.
    """

    partitions: tuple[int, ...] | None = None
    epoch: int = 0
    lease: Lease = field(default_factory=Unfenced)
    share: RateShare = field(default_factory=RateShare)
    rate: RateState | None = None

    @property
    def is_first(self) -> bool:
        """True for the owner that does what only one may do, such as re-drives of dead letters."""
        return self.partitions is None or 0 in self.partitions


class Spent(Struct, frozen=True):
    """The totals of a consumer since its creation: push attempts and their bytes. `allowed` is its
    rate share in messages a second; negative if there is no limit.
    """

    taken: int = 0
    size_bytes: int = 0
    allowed: float = -1.0
