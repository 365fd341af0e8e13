"""The wishes of a publish beside being stored: a key of its own, to be stored under an id that it
had before, a CloudEvent, headers to go along.

Most publishes ask for none of it and never come here.
"""

import re

from msgspec import Struct
from msgspec.structs import replace

from hermes_actors.config import FrontendConfig
from hermes_actors.errors import Refused
from hermes_actors.model.keyed_id import keyed_id
from hermes_actors.model.message import Headers, Message
from hermes_actors.publisher.cloudevents import (
    VERSION_HEADER,
    event_in,
    event_of,
    is_structured,
)
from hermes_actors.publisher.head import Head
from hermes_actors.publisher.idempotency import HEADER, Claim, KeyWindow, parse_key
from hermes_actors.publisher.propagation import Propagation
from hermes_actors.publisher.replayed import REPLAY_ID, replay_of
from hermes_actors.runtime.clock import Clock

# W3C Trace Context, 3.2: what does not look like it is ignored, as the recommendation asks.
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


class Demand(Struct, frozen=True):
    """What one request asks for. `model` is its message as far as the head says: all but body and
    time. `is_event`: the body is a CloudEvent. `claim` is its use of an `Idempotency-Key`, or of
    the id that it is replayed under, which must be concluded once, whatever comes of it.
    """

    model: Message
    is_event: bool = False
    claim: Claim | None = None


class Demands:
    """Reads them from a request's head, and again when its body has come. `dc` is the datacentre
    that messages are published in.
    """

    def __init__(self, config: FrontendConfig, clock: Clock, dc: str) -> None:
        self._now_s = clock.monotonic_s
        self._dc = dc
        self._takes_events = config.cloud_events
        self._takes_replays = config.replay
        self._propagation = Propagation(config.propagation) if config.propagation.enabled else None
        self._window = KeyWindow(config.idempotency.keys_max, config.idempotency.window_ms / 1_000)
        self.reads_every_head = self._propagation is not None
        """True when also a plain head has something that is wanted."""
        self.replays = 0
        """How many publishes were answered again, and not stored again."""

    @property
    def keys(self) -> int:
        """How many keys are remembered now."""
        return len(self._window)

    def read(
        self, topic: str, log_topic: str, message_id: str, key: bytes | None, head: Head
    ) -> Demand:
        """What the head of one message asks for. Raises HermesError for what it must not ask."""
        model = replace(self.common(head), id=message_id, key=key)
        if head.is_plain:
            return Demand(model)
        is_event = self._takes_events and is_structured(head.get("content-type"))
        if self._takes_events and not is_event and head.get(VERSION_HEADER) is not None:
            event = event_of(head.pairs())
            model = replace(
                model, attributes=event.attributes, key=event.key if key is None else key
            )
        value = head.get("idempotency-key")
        replayed = replay_of(head)
        if replayed is not None:
            if not self._takes_replays:
                raise Refused(
                    f"{REPLAY_ID}: this node takes no replays; send it to one that has "
                    "frontend.replay = true",
                    status=403,
                )
            if value is not None:
                raise Refused(f"{REPLAY_ID} and {HEADER} exclude each other; send one of them")
            model = replace(model, id=replayed.id, only_for=replayed.only_for)
            name = f"{replayed.only_for}/{replayed.id}"
            claim = self._window.claim(log_topic, name, self._now_s(), REPLAY_ID)
            return Demand(model, is_event, claim)
        if value is None:
            return Demand(model, is_event)
        # Last, since from here on somebody must conclude it.
        own = parse_key(value)
        claim = self._window.claim(log_topic, own, self._now_s())
        return Demand(replace(model, id=keyed_id(topic, own)), is_event, claim)

    def common(self, head: Head) -> Message:
        """A message that has all that the head says for each of its messages."""
        propagated: Headers = ()
        if self._propagation is not None:
            propagated = self._propagation.pick(head.pairs())
        traceparent = head.get("traceparent") or ""
        if _TRACEPARENT.fullmatch(traceparent) is None:
            traceparent = ""
        return Message("", b"", 0, None, propagated, self._dc, traceparent=traceparent)

    def pick(self, pairs: list[tuple[str, str]]) -> Headers:
        """Which of a message's own headers travel with it."""
        return () if self._propagation is None else self._propagation.pick(pairs)

    def take(self, demand: Demand, body: bytes) -> Message | int:
        """The message in this request's body, still without its time; or the status of the answer
        that it had under the same key before, which is given again. Raises HermesError.
        """
        model = demand.model
        if demand.claim is not None:
            status = demand.claim.match(model.key, body)
            if status:
                self.replays += 1
                return status
        if not demand.is_event:
            return replace(model, body=body)
        event = event_in(body)
        return replace(
            model,
            body=event.body,
            attributes=event.attributes,
            key=event.key if model.key is None else model.key,
        )
