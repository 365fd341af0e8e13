"""Appends one topic's batches, in the own datacentre or with others to help, and tells each
pending what became of it.
"""

from collections.abc import Sequence

import trio

from hermes_actors.fallback.node import Fallback
from hermes_actors.fallback.spool.spool import Spool
from hermes_actors.log.base import Log, Outcome, Stored, stored_count
from hermes_actors.log.batching import PartitionBatch
from hermes_actors.model.message import Envelope, Via, to_record
from hermes_actors.model.messages import joined, records_of
from hermes_actors.model.record import Record
from hermes_actors.publisher.hedging.hedge import Hedge
from hermes_actors.publisher.pending import SETTLED, Pending, Route
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
        """The sender that uses the other datacentres too; None unless there are any and the topic
        asks for it now.
        """
        is_asked = self._route.topic.fallback_to_remote_datacenter_enabled
        return self._hedge if is_asked else None

    def equip(self, nursery: trio.Nursery) -> None:
        """Make ready what the topic, as it is now, asks for; `nursery` is the producer's."""
        route, fallback = self._route, self._fallback
        if (
            self._hedge is None
            and fallback is not None
            and fallback.remotes
            and route.topic.fallback_to_remote_datacenter_enabled
        ):
            self._hedge = Hedge(
                fallback,
                route,
                records=self._send,
                settle=self._conclude,
                limit_s=self._limit_s,
                records_max=self._records_max,
                bytes_max=self._bytes_max,
            )
            route.hurry = self._hedge.hurry
            nursery.start_soon(self._hedge.follow)

    async def append(self, batch: PartitionBatch[Pending]) -> None:
        """Append a batch; returns when its partition may be used again."""
        if batch.is_keyed and self._route.spool is not None:
            await self._join_kept(self._route.spool, batch.items)
        batch.drop_answered()
        pendings = batch.items
        if not pendings:
            return
        route = self._route
        route.measures.taken(batch.count, batch.body_bytes)
        hedge = self.hedge
        if hedge is not None:
            await hedge.append(pendings, batch.partition)
            return
        dc = self._log.dc
        records = self._send(pendings, dc, Via.LOCAL.value)
        outcomes = await self._log.append(
            route.log_topic, batch.partition, records, route.topic.ack
        )
        self._conclude(dc, pendings, outcomes, self._clock.monotonic_s() - batch.started_s)

    def _conclude(
        self, dc: str, pendings: Sequence[Pending], outcomes: Sequence[Outcome], append_s: float
    ) -> None:
        """Tell each pending what became of it in that datacentre."""
        ended: list[Pending] = []
        at = 0
        for pending in pendings:
            outcome = outcomes[at]
            following = at + pending.count
            if type(outcome) is Stored and pending.count == 1 and pending.keeper is None:
                # Nearly all of them: as `conclude` would have it.
                if pending.state != SETTLED:
                    pending.end(outcome)
                    ended.append(pending)
            elif pending.conclude(outcomes[at:following]):
                ended.append(pending)
            at = following
        stored = stored_count(outcomes)
        if stored:
            self._route.measures.acknowledged(dc, stored, append_s)
        if ended:
            self._route.settled(ended, self._clock.monotonic_s())

    async def _join_kept(self, spool: Spool, pendings: Sequence[Pending]) -> None:
        """A key whose older messages the spool holds: its newer ones go behind them."""
        behind = [each for each in pendings if each.is_behind(spool)]
        if not behind:
            return
        # A busy key would never leave the spool if each message joined its predecessor there.
        await spool.catch_up(
            self._route.log_topic,
            lambda: any(not each.is_done and each.is_behind(spool) for each in behind),
        )
        # Others than these may have been kept meanwhile, for want of time: all are looked at.
        for pending in pendings:
            if pending.is_behind(spool):
                pending.join_kept()

    def _send(self, pendings: Sequence[Pending], dc: str, via: str) -> Sequence[Record]:
        """The records of these, which go to that datacentre's log now."""
        for pending in pendings:
            pending.sent()
        for listener in self._route.tally.listeners:
            listener.sent(pendings, dc, via)
        envelope = self._envelope
        if len(pendings) == 1:
            return records_of(pendings[0].messages, envelope, via)
        if sum([pending.count for pending in pendings]) == len(pendings):
            return [to_record(pending.messages[0], envelope, via) for pending in pendings]
        return joined([records_of(pending.messages, envelope, via) for pending in pendings])
