"""The spool as the buffer of publications: 202 once it is on the disk, and never before."""

from collections.abc import Callable

from hermes_actors.config.spool import SpoolConfig
from hermes_actors.errors import ErrorCode, Unavailable
from hermes_actors.fallback.spool.format import SpoolEntry
from hermes_actors.fallback.spool.spool import Spool
from hermes_actors.fallback.spool.store import SpoolUnavailable
from hermes_actors.log.base import Outcome, Stored
from hermes_actors.metadata.keys import parse_log_topic
from hermes_actors.model.message import Message, Via
from hermes_actors.model.topic import Topic
from hermes_actors.publisher.publication import Buffer, Buffered, Extras, Publication, Route
from hermes_actors.runtime.clock import Clock

_NO_EXTRAS = Extras()


class SpoolBuffer:
    """Satisfies `Buffer`. `dc` is the datacentre that the messages' records name."""

    def __init__(self, spool: Spool, clock: Clock, dc: str) -> None:
        self._spool = spool
        self._clock = clock
        self._dc = dc

    def take(self, publication: Publication) -> bool:
        """As `Buffer.take`: False when the spool is full, failing or stopped."""
        now_ms, now_s = self._clock.now_ms(), self._clock.monotonic_s()
        route = publication.route
        entry = SpoolEntry(
            topic=route.name,
            log_topic=route.log_topic,
            incarnation=_incarnation(route),
            ack=route.topic.ack,
            spooled_at_ms=now_ms,
            message=self._message(publication, now_ms, now_s),
        )

        def done(error: SpoolUnavailable | None) -> None:
            if error is None:
                publication.settle(Buffered())
            else:
                publication.settle(_refusal(publication, error))

        return self._spool.offer(
            [entry], done, sent_as=publication if publication.is_sent else None, now_s=now_s
        )

    def holds(self, route: Route, key: bytes) -> bool:
        """As `Buffer.holds`."""
        return self._spool.holds(route.log_topic, key)

    async def catch_up(self, route: Route, is_behind: Callable[[], bool]) -> None:
        """As `Buffer.catch_up`."""
        await self._spool.catch_up(route.log_topic, is_behind)

    def concluded(self, publication: Publication, outcome: Outcome) -> None:
        """As `Buffer.concluded`."""
        self._spool.concluded(publication, [type(outcome) is Stored])

    def _message(self, publication: Publication, now_ms: int, now_s: float) -> Message:
        extras = publication.extras or _NO_EXTRAS
        return Message(
            id=publication.id,
            body=publication.body,
            published_at_ms=now_ms - round((now_s - publication.started_s) * 1_000),
            key=publication.key,
            propagated=extras.propagated,
            dc=self._dc,
            via=Via.SPOOL.value,
            traceparent=extras.traceparent,
            attributes=extras.attributes,
        )


def buffers(
    spool: Spool, config: SpoolConfig, clock: Clock, dc: str
) -> Callable[[Topic], Buffer | None]:
    """Which buffer a topic has: none when another datacentre takes what this one's log does not,
    unless the operator wants both, or messages of the topic wait: newer ones with their keys must
    not overtake them.
    """
    buffer = SpoolBuffer(spool, clock, dc)

    def buffer_of(topic: Topic) -> Buffer | None:
        is_wanted = config.for_fallback_topics or not topic.fallback_to_remote_datacenter_enabled
        return buffer if is_wanted or spool.has(topic.name) else None

    return buffer_of


def _incarnation(route: Route) -> int:
    """Which life of the topic it is: the log topic's name says so."""
    parsed = parse_log_topic(route.log_topic)
    return parsed[1] if parsed is not None else 0


def _refusal(publication: Publication, error: SpoolUnavailable) -> Unavailable:
    name = publication.route.name
    if not publication.is_sent:
        # The log was not asked: older messages of its key wait in the spool.
        return Unavailable(
            f"Message for topic {name} has to wait for older ones of its key, and this node could "
            f"not keep it: {error.message}; try again",
            ErrorCode.OTHER,
        )
    return Unavailable(
        f"Message for topic {name} was not acknowledged by the log, and this "
        f"node could not keep it: {error.message}; it may have been stored",
        ErrorCode.SENDING_TO_KAFKA_TIMEOUT,
    )
