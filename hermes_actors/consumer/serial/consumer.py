"""Pushes one subscription's messages one by one: at least once, within its rate and its bounds.

Data flows from left to right: log → screen → fresh lane → in-flight window → sender → outcome →
settled offset → commit. What is sent when is decided in `dispatch.py`; `push_consumer.py` waits,
reads and commits.
"""

from collections.abc import Callable

from hermes_actors.consumer.letters.letter import DeadLetters
from hermes_actors.consumer.parts import ConsumerParts
from hermes_actors.consumer.push_consumer import PushConsumer
from hermes_actors.consumer.serial.dispatch import Dispatch
from hermes_actors.consumer.serial.lanes import Lanes
from hermes_actors.coordination.owned import Owned
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.subscription import SerialPolicy


class SerialConsumer(PushConsumer):
    """The actor for a subscription with `deliveryType` SERIAL: a push for each message."""

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
        """Raises Refused for an endpoint that cannot be pushed to. `owned` None: it is alone."""
        owned = owned or Owned()
        policy = live.subscription.subscription_policy
        lanes = Lanes(
            1,
            parts.config.waiting_retries_max,
            # Which of the two it is never changes: whoever changes it needs another consumer.
            is_ordered=isinstance(policy, SerialPolicy) and policy.ordered,
        )
        super().__init__(
            live,
            log_topic,
            parts,
            lanes,
            lambda measures, kept, around: Dispatch(
                live, parts, lanes, measures, kept, around, owned
            ),
            owned,
            letters=letters,
            on_started=on_started,
        )
