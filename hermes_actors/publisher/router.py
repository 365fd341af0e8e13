"""Keeps one TopicProducer for each live topic, and the routes that the gateway reads."""

from dataclasses import dataclass

import trio

from hermes_actors.actors.mailbox import Ref
from hermes_actors.actors.restart import TENANT
from hermes_actors.actors.supervisor import Supervisor
from hermes_actors.config import FrontendConfig
from hermes_actors.fallback.node import Fallback
from hermes_actors.fallback.spool.spool import Spool
from hermes_actors.log.base import Log
from hermes_actors.metadata.catalog import LiveTopic, OtherChanged, TopicChanged
from hermes_actors.metadata.registry import Metadata
from hermes_actors.model.message import Envelope
from hermes_actors.model.topic import MemoryFull, Topic
from hermes_actors.publisher.deadlines import Deadlines
from hermes_actors.publisher.drain import Drain
from hermes_actors.publisher.measures import FrontendMeasures
from hermes_actors.publisher.pending import (
    Limits,
    ListenersOf,
    Pending,
    Route,
    SchemaOf,
)
from hermes_actors.publisher.producer import TopicProducer
from hermes_actors.runtime.clock import Clock

_STOP_GRACE_S = 5.0
# How long after its limit a message may still be answered 202, while a slow disk writes it.
_KEEPING_MS = 1_000


@dataclass(eq=False)
class Routes:
    """The routes by `group.topic`, and how they are created, changed and removed.

    They outlive a run of `follow`, so publishing continues while that restarts. `spool` keeps
    messages that no log takes in time; `fallback` reaches other datacentres, for the topics that
    want it. `schema_of` and `listeners_of` return a topic's schema check and its listeners.
    """

    config: FrontendConfig
    log: Log
    supervisor: Supervisor
    deadlines: Deadlines
    measures: FrontendMeasures
    drain: Drain
    clock: Clock
    envelope: Envelope
    spool: Spool | None
    fallback: Fallback | None
    schema_of: SchemaOf
    listeners_of: ListenersOf

    def __post_init__(self) -> None:
        self.by_name: dict[str, Route] = {}
        """The live routes; always the same dict."""
        self._started = 0
        config = self.config
        for limit_ms in (
            config.idle_timeout_ms,
            config.long_idle_timeout_ms,
            config.max_publish_request_duration_ms,
        ):
            self._limits(limit_ms, has_spool=False)

    async def follow(self, metadata: Metadata, stop: trio.Event) -> None:
        """Keep the routes up to date with the metadata until asked to stop: first the current
        state, then each change.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow, metadata, nursery)
            await stop.wait()
            nursery.cancel_scope.cancel()

    async def _follow(self, metadata: Metadata, nursery: trio.Nursery) -> None:
        with metadata.watch() as watch:
            # A topic that was deleted while nobody watched does not appear as a change.
            for name in list(self.by_name):
                if name not in metadata.catalog.topics:
                    self.remove(name, nursery)
            async for change in watch:
                match change:
                    case TopicChanged(name, None):
                        self.remove(name, nursery)
                    case TopicChanged(_, live) if live is not None:
                        self.set(live, nursery)
                    case OtherChanged(key):
                        for name in metadata.catalog.subjects_by(key):
                            self.renew_schema(name)

    def set(self, live: LiveTopic, nursery: trio.Nursery) -> None:
        """Create or change the topic's route. A new incarnation gets a new producer."""
        name = str(live.name)
        route = self.by_name.get(name)
        if route is not None and route.log_topic != live.log_topic:
            self.remove(name, nursery)
            route = None
        if route is None:
            self.by_name[name] = self._start(live)
            return
        if route.topic.ack is not live.topic.ack:
            route.measures = self.measures.topic(live.name, live.topic.ack)
        self._equip(route, live.topic)
        route.change(live.topic)

    def renew_schema(self, name: str) -> None:
        """Look up again the schema check of a topic, if it has a route."""
        route = self.by_name.get(name)
        if route is not None:
            route.change(route.topic)

    def remove(self, name: str, nursery: trio.Nursery) -> None:
        """Remove the topic's route at once; its producer stops in the background."""
        route = self.by_name.pop(name, None)
        if route is not None:
            route.measures.forget()
            # Its log may be silent, and other topics' changes must not wait for that.
            nursery.start_soon(self._stop, route.producer)

    async def _stop(self, child: str) -> None:
        await self.supervisor.stop(child, grace_s=_STOP_GRACE_S)

    def _start(self, live: LiveTopic) -> Route:
        config = self.config
        self._started += 1
        first = self._started

        def make() -> TopicProducer:
            return TopicProducer(
                route,
                self.log,
                self.clock,
                config,
                envelope=self.envelope,
                first=first,
                fallback=self.fallback,
            )

        producer = f"producer {live.log_topic}"
        if self.supervisor.has(producer):
            # The topic has come back (from a stand-in's metadata, for example) while its last
            # producer is still stopping.
            producer += f" {first}"
        ref: Ref[Pending] = self.supervisor.start(
            producer,
            make,
            restart=TENANT,
            mailbox_capacity=config.waiting_per_topic_max,
        )
        # `make` runs later, in the supervisor's task, so it sees the route.
        route = Route(
            str(live.name),
            live.log_topic,
            live.topic,
            ref,
            self._limits(self._limit_ms(live.topic), has_spool=False),
            self.measures.topic(live.name, live.topic.ack),
            self.drain,
            producer,
            self.schema_of,
            self.listeners_of,
        )
        self._equip(route, live.topic)
        return route

    def _equip(self, route: Route, topic: Topic) -> None:
        """Set the route's spool and limits for these settings of its topic."""
        limit_ms = self._limit_ms(topic)
        spool = self.spool_of(topic)
        if spool is not None:
            # Otherwise the route keeps its spool: messages under way may still go there, and newer
            # ones must not overtake them.
            route.spool = spool
        has_spool = route.spool is not None
        route.limits = self._limits(limit_ms, has_spool=has_spool)
        # A batch is for throughput: a log that pauses for a moment, for example to write back, must
        # not fail all messages under way.
        batch_limit_ms = max(limit_ms, self.config.max_publish_request_duration_ms)
        route.batch_limits = self._limits(batch_limit_ms, has_spool=has_spool)

    def spool_of(self, topic: Topic) -> Spool | None:
        """Return the spool for the topic, or None.

        A topic that falls back to other datacentres has none, unless the operator wants both, or
        messages of the topic are still in the spool: newer ones with the same keys must not
        overtake them. One in memory has none.
        """
        spool = None if topic.is_in_memory else self.spool
        if spool is None or not topic.fallback_to_remote_datacenter_enabled:
            return spool
        return spool if spool.config.for_fallback_topics or spool.index.has(topic.name) else None

    def _limits(self, limit_ms: int, *, has_spool: bool) -> Limits:
        limits = Limits(limit_ms, limit_ms, limit_ms)
        if has_spool and self.spool is not None:
            # At least half of the shortest limit is left for the log.
            reserve_ms = min(self.spool.config.reserve_ms, self.config.idle_timeout_ms // 2)
            limits = Limits(max(limit_ms - reserve_ms, 1), limit_ms, limit_ms + _KEEPING_MS)
        self.deadlines.expect(limits)
        return limits

    def _limit_ms(self, topic: Topic) -> int:
        if topic.fallback_to_remote_datacenter_enabled or topic.memory_full is MemoryFull.WAIT:
            return self.config.max_publish_request_duration_ms
        if topic.ack.waits_for_replicas:
            return self.config.long_idle_timeout_ms
        return self.config.idle_timeout_ms
