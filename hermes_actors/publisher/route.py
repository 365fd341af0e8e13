"""The state of one live topic that publishing to it needs, worked out once and not per message."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import trio
from msgspec.structs import replace

from hermes_actors.actors.mailbox import Ref
from hermes_actors.errors import ErrorCode, HermesError, Refused
from hermes_actors.fallback.spool.format import SpoolEntry
from hermes_actors.fallback.spool.spool import Spool
from hermes_actors.fallback.spool.store import SpoolUnavailable
from hermes_actors.metadata.keys import parse_log_topic
from hermes_actors.model.message import Message, Via
from hermes_actors.model.topic import ContentType, Topic
from hermes_actors.publisher.measures import TopicMeasures
from hermes_actors.publisher.permits import Permits


class Tally:
    """How many publishes of this node are under way; the drain waits until none is."""

    __slots__ = ("in_flight",)

    def __init__(self) -> None:
        self.in_flight = 0


class Limits(NamedTuple):
    """The time limits of a publish, in ms after its start: until the spool is asked, until it is
    answered that none took it, and until it is answered that the spool's disk did not. Without a
    spool all are the same.
    """

    first_ms: int
    late_ms: int
    kept_ms: int


Validate = Callable[[Message, Callable[[HermesError | None], None]], None]
"""Checks a message for its topic, and calls back once, now or later: None for a good one."""


def without_schema(topic: str) -> Refused:
    """The topic's messages need a schema, and there is none."""
    return Refused(f"No schema is known for topic {topic}", ErrorCode.SCHEMA_COULD_NOT_BE_LOADED)


def _hurry_nobody() -> None:
    pass


class Route:
    """One live topic.

    `is_open` is False while the topic's producer backs off after a failure. `version` grows when
    the topic changes, so that the producer looks its partitions up again; `change` also wakes it,
    before the next message. `producer` is what the supervisor calls that actor, `ref` its mailbox
    of Pendings. `partitions` is 0 until the producer knows how many the log topic has.
    `batch_permits` bounds what batches have under way for it, `batch_limits` are those of their
    messages. `validate` is what the topic demands of a message beyond its length; None for nothing.
    `hurry` has those told of their fate that is known, before their limit is what they
    are answered with.
    """

    __slots__ = (
        "batch_limits",
        "batch_permits",
        "changed",
        "hurry",
        "incarnation",
        "is_open",
        "limits",
        "log_topic",
        "measures",
        "name",
        "partitions",
        "producer",
        "ref",
        "spool",
        "tally",
        "topic",
        "validate",
        "version",
    )

    def __init__(
        self,
        name: str,
        log_topic: str,
        topic: Topic,
        ref: Ref[Any],
        limits: Limits,
        measures: TopicMeasures,
        tally: Tally,
        producer: str,
    ) -> None:
        self.name = name
        self.log_topic = log_topic
        parsed = parse_log_topic(log_topic)
        self.incarnation = parsed[1] if parsed is not None else 0
        self.topic = topic
        self.validate = self._validation(topic)
        self.ref = ref
        self.limits = limits
        self.measures = measures
        self.tally = tally
        self.producer = producer
        self.spool: Spool | None = None
        self.hurry: Callable[[], None] = _hurry_nobody
        self.is_open = True
        self.partitions = 0
        self.batch_limits = limits
        self.batch_permits: Permits | None = None
        self.version = 0
        self.changed = trio.Event()

    def change(self, topic: Topic) -> None:
        """The topic is now this."""
        self.topic = topic
        self.validate = self._validation(topic)
        self.version += 1
        self.changed.set()
        self.changed = trio.Event()

    def _validation(self, topic: Topic) -> Validate | None:
        if topic.content_type is ContentType.JSON:
            return None
        return lambda _message, done: done(without_schema(self.name))

    def keep(
        self,
        spool: Spool,
        messages: Sequence[Message],
        done: Callable[[SpoolUnavailable | None], None],
        sent_as: object,
    ) -> bool:
        """Offer these to the spool, all or none: True when it takes them, and calls `done` once,
        later. `sent_as` is what their append is known by; None when none is under way.
        """
        clock = spool.clock
        spooled_at_ms = clock.now_ms()
        ack = self.topic.ack
        entries = [
            SpoolEntry(
                topic=self.name,
                log_topic=self.log_topic,
                incarnation=self.incarnation,
                ack=ack,
                spooled_at_ms=spooled_at_ms,
                message=replace(message, via=Via.SPOOL.value),
            )
            for message in messages
        ]
        return spool.offer(entries, done, sent_as=sent_as, now_s=clock.monotonic_s())
