"""Pushes one subscription's messages one by one: at least once, within its rate and its bounds.

Data flows from left to right: log → screen → fresh lane → in-flight window → sender → outcome →
settled offset → commit. What is sent when is decided in `dispatch.py`; `push_consumer.py` waits,
reads and commits.
"""

from hermes_actors.consumer.parts import ConsumerParts
from hermes_actors.consumer.push_consumer import MakeSending, PushConsumer
from hermes_actors.consumer.reading.buffer import Buffer
from hermes_actors.consumer.serial.dispatch import Dispatch
from hermes_actors.consumer.serial.lanes import Lanes
from hermes_actors.coordination.owned import Owned
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.subscription import SerialPolicy


class SerialConsumer(PushConsumer):
    """The actor for a subscription with `deliveryType` SERIAL: a push for each message."""

    def _halves(
        self, live: LiveSubscription, parts: ConsumerParts, owned: Owned
    ) -> tuple[Buffer, MakeSending]:
        policy = live.subscription.subscription_policy
        lanes = Lanes(
            1,
            parts.config.waiting_retries_max,
            # Which of the two it is never changes: whoever changes it needs another consumer.
            is_ordered=isinstance(policy, SerialPolicy) and policy.ordered,
        )
        return lanes, lambda transitions, letters, around: Dispatch(
            live, parts, lanes, transitions, letters, around, owned
        )
