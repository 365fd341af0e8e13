"""After an owner that did not end in good order, what it may have looked at is looked at a few
messages at a time, each few written down before: so a message that ends its owner is known when it
has ended the second one.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import ceil

import trio

from hermes_actors.consumer.offsets.partition import PartitionOffsets
from hermes_actors.model.record import StoredRecord

FEW = 4
"""How many messages are looked at together at most, and may be set aside together."""
ONE_BY_ONE_MAX = 16
"""Where no more are left than this, they are looked at one by one."""
SUSPECTS_MAX = 256
"""How many messages are looked at with care after one loss."""
CARE_FOR_S = 3.0
"""And for so long: then all goes on as ever, whatever is left."""
POISON = (
    "two nodes were lost one after the other while it was being looked at, the second time alone "
    "or with few others; it was not looked at again"
)
"""Why a message is given up that has ended two owners."""
_LANDING_POLL_S = 0.005
PATIENCE_S = 0.1
"""How long a few messages are waited for before the next: until then they are settled, or their
pushes wait for answers."""


class Care:
    """For one consumer's life. Each partition's `suspects_end` says how far its suspects reach."""

    def __init__(self, now_s: float) -> None:
        self._until_s = now_s + CARE_FOR_S
        self._left = SUSPECTS_MAX

    def take(
        self,
        batch: Sequence[StoredRecord],
        partitions: Mapping[int, PartitionOffsets],
        now_s: float,
    ) -> int:
        """How many records at the beginning of `batch`, which is not empty, to look at now.

        Their suspects are the partitions' `marked` offsets from now on, to be committed before. 0:
        nothing is suspect any more.
        """
        for offsets in partitions.values():
            offsets.marked = ()
        few = min(self._left, self._few(partitions))
        if self.is_over(now_s) or few <= 0:
            return 0
        count = suspects = 0
        for record in batch:
            offsets = partitions[record.partition]
            if offsets.is_suspect(record.offset):
                if suspects == few:
                    break
                suspects += 1
                offsets.marked = (*offsets.marked, record.offset)
            count += 1
        self._left -= suspects
        return count

    async def write_ahead(
        self,
        partitions: Mapping[int, PartitionOffsets],
        commit: Callable[[], Awaitable[bool]],
    ) -> None:
        """Have the marked offsets committed, as long as it takes and the care is not over."""
        if is_under_way(partitions):
            while not await commit() and not self.is_over(trio.current_time()):  # noqa: ASYNC110
                await trio.sleep(PATIENCE_S)

    def is_over(self, now_s: float) -> bool:
        """True once the care has taken as long as it may."""
        return now_s >= self._until_s

    def _few(self, partitions: Mapping[int, PartitionOffsets]) -> int:
        rest = sum(max(0, each.suspects_end - each.read_end) for each in partitions.values())
        return min(FEW, ceil(rest / ONE_BY_ONE_MAX))


async def let_land(partitions: Mapping[int, PartitionOffsets]) -> None:
    """Wait until no marked message is under way any more, for PATIENCE_S at most."""
    until_s = trio.current_time() + PATIENCE_S
    while is_under_way(partitions) and trio.current_time() < until_s:  # noqa: ASYNC110
        await trio.sleep(_LANDING_POLL_S)


def is_under_way(partitions: Mapping[int, PartitionOffsets]) -> bool:
    """True while some marked message is not settled."""
    return any(not set(each.marked).isdisjoint(each.marks) for each in partitions.values())
