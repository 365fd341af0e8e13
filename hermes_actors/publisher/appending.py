"""Appends one topic's batches, in the own datacentre or with others to help, and tells each
publication what became of it.
"""

from collections.abc import Iterable, Sequence
from typing import cast

import trio

from hermes_actors.fallback.flight import Item
from hermes_actors.fallback.hedge import Hedge
from hermes_actors.fallback.node import Fallback
from hermes_actors.log.base import Log, Outcome, Stored, stored_count
from hermes_actors.log.batching import Batch
from hermes_actors.model.message import Envelope, Message, Via, to_record
from hermes_actors.model.record import Record
from hermes_actors.publisher.bundle import Bundle, joined
from hermes_actors.publisher.publication import Publication, Route
from hermes_actors.runtime.clock import Clock


class Appending:
    """For the route's topic as it is at the time of each append.

    `fallback` None, or without remotes: the own log alone. `limit_s` is the time limit of topics
    that use the others too.
    """

    def __init__(
        self,
        route: Route,
        log: Log,
        clock: Clock,
        envelope: Envelope,
        fallback: Fallback | None,
        *,
        limit_s: float,
        records_max: int,
        bytes_max: int,
    ) -> None:
        self._route = route
        self._log = log
        self._clock = clock
        self._envelope = envelope
        self._fallback = fallback
        self._limit_s = limit_s
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._hedge: Hedge | None = None

    @property
    def hedge(self) -> Hedge | None:
        """What uses the other datacentres, if the topic asks for it now."""
        is_asked = self._route.topic.fallback_to_remote_datacenter_enabled
        return self._hedge if is_asked else None

    def equip(self, nursery: trio.Nursery) -> None:
        """Make ready what the topic, as it is now, asks for; `nursery` is the producer's."""
        route, fallback = self._route, self._fallback
        if self._hedge is not None:
            self._hedge.change(route.topic.ack, route.topic.chaos)
        elif (
            fallback is not None
            and fallback.remotes
            and route.topic.fallback_to_remote_datacenter_enabled
        ):
            self._hedge = Hedge(
                fallback,
                route.name,
                route.log_topic,
                ack=route.topic.ack,
                records=self._records_of,
                settle=self._settle,
                limit_s=self._limit_s,
                chaos=route.topic.chaos,
                keys=_keys_of,
                joins=_joins_kept,
                keeps=_keeps,
                records_max=self._records_max,
                bytes_max=self._bytes_max,
            )
            route.hurry = self._hedge.hurry
            nursery.start_soon(self._hedge.follow)

    async def append(self, batch: Batch) -> None:
        """Append a batch; returns when its partition may be used again."""
        await self._drop_held(batch)
        batch.drop_answered()
        publications = cast("list[Publication]", batch.items)
        if not publications:
            return
        route = self._route
        route.measures.sent(batch.count, batch.body_bytes)
        for publication in publications:
            publication.is_sent = True
        hedge = self.hedge
        if hedge is not None:
            await hedge.append(publications, batch.partition)
            return
        is_plain = batch.count == len(publications)
        records = self._records(publications) if is_plain else self._joined(publications)
        outcomes = await self._log.append(
            route.log_topic, batch.partition, records, route.topic.ack
        )
        append_s = self._clock.monotonic_s() - batch.started_s
        self._conclude(self._log.dc, publications, outcomes, append_s)

    def _settle(
        self, dc: str, items: Sequence[Item], outcomes: Sequence[Outcome], append_s: float
    ) -> None:
        self._conclude(dc, cast("Sequence[Publication]", items), outcomes, append_s)

    def _conclude(
        self,
        dc: str,
        publications: Sequence[Publication],
        outcomes: Sequence[Outcome],
        append_s: float,
    ) -> None:
        """Tell each publication what became of it in that datacentre."""
        now_s = self._clock.monotonic_s()
        measures = self._route.measures
        stored = 0
        latencies_s: list[float] = []
        at = 0
        for publication in publications:
            outcome = outcomes[at]
            if type(outcome) is Stored and publication.count == 1 and not publication.is_kept:
                stored += 1
                if publication.settle(outcome):
                    latencies_s.append(now_s - publication.started_s)
                at += 1
                continue
            following = at + publication.count
            own = outcomes[at:following]
            stored += stored_count(own)
            answered = publication.conclude(own)
            if publication.count == 1:
                latencies_s += [now_s - publication.started_s] * answered
            else:
                measures.stored_together(now_s - publication.started_s, answered)
            at = following
        if stored:
            measures.stored(latencies_s, stored, append_s, dc)

    async def _drop_held(self, batch: Batch) -> None:
        """A key whose older messages the buffer holds: its newer ones go behind them."""
        buffer = self._route.buffer
        if buffer is None or not batch.is_keyed:
            return
        publications = cast("list[Publication]", batch.items)
        behind = [each for each in publications if each.is_behind(buffer)]
        if not behind:
            return
        # A busy key would never leave the buffer if each message joined its predecessor there.
        await buffer.catch_up(
            self._route, lambda: any(not each.is_done and each.is_behind(buffer) for each in behind)
        )
        # Others than these may have been kept meanwhile, for want of time: all are looked at.
        for publication in publications:
            if publication.is_behind(buffer):
                publication.join_kept()

    def _records_of(self, items: Sequence[Item], via: str) -> Sequence[Record]:
        publications = cast("Sequence[Publication]", items)
        if all(publication.count == 1 for publication in publications):
            return self._records(publications, via)
        return self._joined(publications, via)

    def _joined(
        self, publications: Sequence[Publication], via: str = Via.LOCAL.value
    ) -> Sequence[Record]:
        """The records of single messages and bundles, in order."""
        clock, dc, envelope = self._clock, self._log.dc, self._envelope
        zero_ms = clock.now_ms() - clock.monotonic_s() * 1_000
        return joined(
            [
                each.records(zero_ms, dc, envelope, via)
                if isinstance(each, Bundle)
                else self._records([each], via)
                for each in publications
            ]
        )

    def _records(
        self, publications: Sequence[Publication], via: str = Via.LOCAL.value
    ) -> Sequence[Record]:
        clock, dc, envelope = self._clock, self._log.dc, self._envelope
        # One reading of the wall clock for the batch; each message's own age comes off it.
        zero_ms = clock.now_ms() - clock.monotonic_s() * 1_000
        return [
            to_record(
                Message(
                    id=each.id,
                    body=each.body,
                    published_at_ms=int(zero_ms + each.started_s * 1_000),
                    key=each.key,
                    dc=dc,
                    via=via,
                )
                if each.extras is None
                else Message(
                    id=each.id,
                    body=each.body,
                    published_at_ms=int(zero_ms + each.started_s * 1_000),
                    key=each.key,
                    propagated=each.extras.propagated,
                    dc=dc,
                    via=via,
                    traceparent=each.extras.traceparent,
                    attributes=each.extras.attributes,
                ),
                envelope,
            )
            for each in publications
        ]


def _keys_of(item: Item) -> Sequence[bytes | None] | None:
    return item.keys if isinstance(item, Bundle) else None


def _joins_kept(item: Item, older: Iterable[Item]) -> bool:
    publication = cast("Publication", item)
    buffer = publication.route.buffer
    if buffer is None or publication.is_done or not publication.is_behind(buffer):
        return False
    for each in cast("Iterable[Publication]", older):
        if each.is_behind(buffer):
            each.join_kept()
    publication.join_kept()
    return True


def _keeps(item: Item) -> bool:
    return cast("Publication", item).keep()
