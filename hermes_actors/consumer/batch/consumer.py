"""Pushes one subscription's messages in batches, one batch at a time: at least once, in order.

Data flows from left to right: log → screen → open batch → current batch → sender → outcome →
settled offsets → commit. What is sent when is decided in `batch_dispatch.py`, what goes into a
batch in `batch_assembly.py`; `push_consumer.py` waits, reads and commits.
"""

from collections.abc import Callable

from hermes_actors.consumer.batch.dispatch import BatchDispatch, assembly_of
from hermes_actors.consumer.letters.letter import DeadLetters
from hermes_actors.consumer.parts import ConsumerParts
from hermes_actors.consumer.push_consumer import PushConsumer
from hermes_actors.coordination.owned import Owned
from hermes_actors.metadata.catalog import LiveSubscription


class BatchConsumer(PushConsumer):
    """The actor for a subscription with `deliveryType` BATCH."""

    def __init__(
        self,
        live: LiveSubscription,
        log_topic: str,
        parts: ConsumerParts,
        *,
        owned: Owned | None = None,
        letters: DeadLetters | None = None,
        on_started: Callable[[], None] = lambda: None,
    ) -> None:
        """Raises Refused for an endpoint that batches cannot be pushed to. `owned` None: it is
        alone.
        """
        owned = owned or Owned()
        assembly = assembly_of(live, parts)
        super().__init__(
            live,
            log_topic,
            parts,
            assembly,
            lambda measures, kept, around: BatchDispatch(
                live, parts, assembly, measures, kept, around, owned
            ),
            owned,
            letters=letters,
            on_started=on_started,
        )
