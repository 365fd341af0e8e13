"""Pushes one subscription's messages in batches, one batch at a time: at least once, in order.

Data flows from left to right: log → screen → open batch → current batch → sender → outcome →
settled offsets → commit. What is sent when is decided in `dispatch.py`, what goes into a
batch in `assembly.py`; `push_consumer.py` waits, reads and commits.
"""

from hermes_actors.consumer.batch.dispatch import BatchDispatch, assembly_of
from hermes_actors.consumer.parts import ConsumerParts
from hermes_actors.consumer.push_consumer import MakeSending, PushConsumer
from hermes_actors.consumer.reading.buffer import Buffer
from hermes_actors.coordination.owned import Owned
from hermes_actors.metadata.catalog import LiveSubscription


class BatchConsumer(PushConsumer):
    """The actor for a subscription with `deliveryType` BATCH."""

    def _halves(
        self, live: LiveSubscription, parts: ConsumerParts, owned: Owned
    ) -> tuple[Buffer, MakeSending]:
        assembly = assembly_of(live, parts)
        return assembly, lambda transitions, letters, around: BatchDispatch(
            live, parts, assembly, transitions, letters, around, owned
        )
