"""Makes the consumer of a subscription, or says why this version cannot consume it."""

from collections.abc import Callable

from hermes_actors.consumer.batch.pushing import batch_recipients_of
from hermes_actors.consumer.delivery.parts import ConsumerParts
from hermes_actors.consumer.delivery.pushes import recipients_of
from hermes_actors.consumer.letters.kept import letters_of
from hermes_actors.consumer.push_consumer import PushConsumer
from hermes_actors.consumer.recipients.signing import signer_of
from hermes_actors.coordination.owned import Owned
from hermes_actors.errors import Refused
from hermes_actors.filters.compiled import refusal
from hermes_actors.metadata.catalog import LiveSubscription, LiveTopic
from hermes_actors.model.subscription import BatchPolicy, DeliveryType
from hermes_actors.model.topic import ContentType


class ConsumerFactory:
    """Serial and batch consumers over a node's shared parts."""

    def __init__(self, parts: ConsumerParts) -> None:
        self._parts = parts

    def refusal(self, live: LiveSubscription, topic: LiveTopic) -> str:
        """Why the subscription cannot be consumed as it stands; "" when it can."""
        subscription = live.subscription
        is_batch = subscription.delivery_type is DeliveryType.BATCH
        if isinstance(subscription.subscription_policy, BatchPolicy) is not is_batch:
            return "subscriptionPolicy is not of the kind that deliveryType says"
        is_avro = subscription.content_type is ContentType.AVRO
        if not_known := refusal(subscription.filters):
            return not_known
        try:
            signer_of(subscription)
            if is_batch:
                batch_recipients_of(live, self._parts)
            elif recipients_of(live, self._parts).is_by_message and is_avro:
                return "endpoint: a {field} is filled from JSON; use contentType JSON"
        except Refused as error:
            return error.message
        return ""

    def make(
        self,
        live: LiveSubscription,
        topic: LiveTopic,
        owned: Owned | None = None,
        on_started: Callable[[], None] = lambda: None,
    ) -> PushConsumer:
        """A consumer of what is owned, None: of all. Only for what `refusal` lets through."""
        parts, log_topic = self._parts, topic.log_topic
        owned = owned or Owned()
        return PushConsumer(
            live,
            log_topic,
            parts,
            topic_content=topic.topic.content_type,
            owned=owned,
            letters=letters_of(live, log_topic, parts, owned.lease),
            on_started=on_started,
        )
