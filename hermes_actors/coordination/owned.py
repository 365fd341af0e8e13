"""The part of a subscription that a node owns: partitions, epoch, lease, and its part of the rate.

The agent makes one for each grant. The consumer looks at it immediately before each act that others
could see.
"""

from collections.abc import Callable

from msgspec import Struct, field

from hermes_actors.coordination.commands import RateState
from hermes_actors.coordination.lease import Lease
from hermes_actors.runtime.clock import SystemClock


class Unfenced(Lease):
    """The lease of a consumer that is alone: always open."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("", SystemClock())

    def is_open(self) -> bool:
        """True always."""
        return True

    async def wait_opened(self) -> None:
        """Return at once."""


class RateShare:
    """Which part of the subscription's maximum rate one owner may use now, 0 to 1.

    It may change at any time. `on_change` is the latest consumer's, and must not wait.
    """

    __slots__ = ("on_change", "value")

    def __init__(self, value: float = 1.0) -> None:
        self.value = value
        self.on_change: Callable[[], None] = _nobody

    def change(self, value: float) -> None:
        """Put another share in force at once. 0: nothing is sent until it rises."""
        if value != self.value:
            self.value = value
            self.on_change()


def _nobody() -> None:
    """No consumer has been made yet."""


class Owned(Struct, frozen=True):
    """The partitions that one consumer consumes, and the lease and epoch that it owns them by. The
    default is for a consumer that is alone.

    `partitions` None: all, also those that are added later. `epoch` is that of the grant; `rate`
    what the owner before knew of the endpoint, None when nobody knew anything.
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
    """The totals of a consumer since it was made: messages pushed, each attempt counted, and their
    bytes. `allowed` is its share of the rate, in messages a second; below 0: nothing limits it.
    """

    taken: int = 0
    size_bytes: int = 0
    allowed: float = -1.0
