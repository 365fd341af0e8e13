"""The weight of work in thousandths of a core, from the measured loads in the coordination log."""

from collections.abc import Mapping
from statistics import median

from msgspec import Struct

from hermes_actors.coordination.commands import TaskLoad
from hermes_actors.coordination.state import CoordinationState

MESSAGE_WEIGHT = 0.03
"""Per message a second: a delivery takes 30 µs."""
KIB_WEIGHT = 0.003
"""Per KiB a second: reading, copying and sending it takes 3 µs."""
WEIGHT_UNKNOWN = 1.0
"""Used if nothing has been measured."""
IDLE_WEIGHT = 0.2
"""Minimum weight of a task, for fetching, committing and reporting."""


def weight_of(load: TaskLoad) -> float:
    """The weight of a measured load: its CPU; without that, an estimate from its messages."""
    if load.cpu > 0:
        return 1_000 * load.cpu
    return MESSAGE_WEIGHT * load.messages + KIB_WEIGHT * load.size_bytes / 1_024


class Weights(Struct, frozen=True):
    """The weight of each subscription, over all its owners."""

    subscriptions: Mapping[str, float] = {}

    def of_task(self, subscription: str, partitions: int, all_partitions: int) -> float:
        """Return the weight of a task with `partitions` out of `all_partitions`."""
        weight = self.subscriptions.get(subscription, 0.0)
        return max(IDLE_WEIGHT, weight * partitions / max(1, all_partitions))


def weights_of(state: CoordinationState) -> Weights:
    """All measured weights; a subscription without a measurement gets the median."""
    known = {
        name: weight_of(ownership.load)
        for name, ownership in state.subscriptions.items()
        if ownership.load is not None
    }
    usual = median(known.values()) if known else WEIGHT_UNKNOWN
    return Weights({name: known.get(name, usual) for name in state.subscriptions})
