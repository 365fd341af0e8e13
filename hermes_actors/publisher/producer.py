"""Appends the messages of one topic, in batches, and settles each pending exactly once.

While an append is in flight, messages that could not be sent anyway stay in the mailbox and form
the next batch. That makes a loaded broker cheap.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import trio

from hermes_actors.actors.mailbox import Inbox
from hermes_actors.config import FrontendConfig
from hermes_actors.fallback.node import Fallback
from hermes_actors.fallback.spool.spool import Spool
from hermes_actors.log.base import (
    Log,
    LogUnavailable,
    Outcome,
    Stored,
    TopicSettings,
    UnavailableRecord,
    UnknownRecord,
    stored_count,
)
from hermes_actors.log.batching import Batcher, PartitionBatch
from hermes_actors.model.message import Envelope, Via, to_record
from hermes_actors.model.messages import joined, records_of
from hermes_actors.model.record import Record
from hermes_actors.publisher.hedging.decision import Decision
from hermes_actors.publisher.hedging.hedge import Hedge
from hermes_actors.publisher.pending import SETTLED, Pending, Route
from hermes_actors.runtime.clock import Clock

_SLOW_S = 0.020
_LOOKUP_FIRST_S = 0.02
_LOOKUP_MAX_S = 1.0
_LOOK_AGAIN_S = 30.0
_OWN_LOG_PATIENCE_S = 0.25


@dataclass(eq=False)
class TopicProducer:
    """The producer of one live topic.

    At most `waiting_per_topic_max` messages with keys wait here, besides those in the mailbox.
    `first` is the partition of the first batch without keys. `fallback` is for topics that want
    other datacentres when the own log does not work.
    """

    route: Route
    log: Log
    clock: Clock
    config: FrontendConfig
    envelope: Envelope = Envelope.NATIVE
    first: int = 0
    fallback: Fallback | None = None

    def __post_init__(self) -> None:
        self._hedge: Hedge | None = None
        self._has_keys = False
        self._first = 0
        self._freed = trio.Event()
        self._leading: PartitionBatch[Pending] | None = None
        self._slow = trio.CancelScope()
        self._watching = trio.CancelScope()
        self._passing = trio.CancelScope()
        self._looked_up_s = -math.inf
        self._asking_own = trio.CancelScope()
        # One partition until the real number is known.
        self._batcher: Batcher[Pending] = Batcher(
            1,
            records_max=self.config.batch_records_max,
            bytes_max=self.config.batch_bytes_max,
            first=self.first,
            slow_s=_SLOW_S,
        )
        # Set by `run`. Appends have a separate nursery, which ends before the background one.
        self._inbox: Inbox[Pending]
        self._background: trio.Nursery
        self._appends: trio.Nursery

    async def run(self, inbox: Inbox[Pending]) -> None:
        """Append until the inbox ends; the waiting messages go out first."""
        self._inbox = inbox
        self.route.is_open = True
        try:
            async with trio.open_nursery() as self._background:
                self._background.start_soon(self._follow_topic)
                self._equip()
                if await self._know_partitions():
                    await self._run()
                self._background.cancel_scope.cancel()
        finally:
            self.route.is_open = False
            self._give_up()

    async def _follow_topic(self) -> None:
        """Set up what the topic's settings need, at once and after each change.

        Looking up the remotes takes time that the next message may not have.
        """
        hedge = self._hedge_now
        while True:
            changed = self.route.changed
            self._equip()
            if hedge is None and self._hedge_now is not None:
                # There is no need any more to wait for a silent own log.
                self._asking_own.cancel()
            hedge = self._hedge_now
            await changed.wait()
            self._looked_up_s = -math.inf

    @property
    def _hedge_now(self) -> Hedge | None:
        """The hedge, if there are other datacentres and the topic wants them now; else None."""
        is_asked = self.route.topic.fallback_to_remote_datacenter_enabled
        return self._hedge if is_asked else None

    def _equip(self) -> None:
        """Set up what the topic's current settings need."""
        route, fallback = self.route, self.fallback
        if (
            self._hedge is None
            and fallback is not None
            and fallback.remotes
            and route.topic.fallback_to_remote_datacenter_enabled
        ):
            self._hedge = Hedge(
                fallback, route, self.config, records=self._send, settle=self._conclude
            )
            route.hurry = self._hedge.hurry
            self._background.start_soon(self._hedge.follow)

    async def _run(self) -> None:
        if self._hedge is not None and not self._hedge.decision.is_own_known:
            self._background.start_soon(self._find_own, self._hedge.decision)
        async with trio.open_nursery() as self._appends:
            self._appends.start_soon(self._watch)
            await self._feed()
            self._watching.cancel()

    async def _feed(self) -> None:
        """Start appends as messages arrive, until the inbox has ended."""
        while await self._inbox.wait():
            self._take()
            if self._has_keys:
                return await self._feed_keyed()
            self._look_up_if_due()
            batch = self._batcher.next_batch(self.clock.monotonic_s())
            # Without keys, no message can be sent while a batch is in flight. So no other task is
            # woken: this task appends, and sees new messages when the append has ended.
            if batch is not None:
                await self._lead(batch)
            else:
                await self._wait_until_freed()
        return None

    async def _feed_keyed(self) -> None:
        """As `_feed`, for a topic with keys: idle partitions do not wait for busy ones."""
        while True:
            self._take()
            self._start()
            if self._batcher.waiting >= self.config.waiting_per_topic_max:
                await self._wait_until_freed()
            elif not await self._wait_for_message():
                return

    async def _lead(self, batch: PartitionBatch[Pending] | None) -> None:
        """Append one batch after another until none is left."""
        # Unless a batch is slow, this wakes no task.
        self._slow.deadline = trio.current_time() + _SLOW_S
        while batch is not None:
            self._leading = batch
            batch = await self._append(batch)
        self._leading = None
        self._slow.deadline = math.inf
        # A message wakes only one reader of the inbox. That must be `_feed` again, not `_watch`.
        self._passing.cancel()

    async def _watch(self) -> None:
        """Read the inbox in place of `_lead` while its batch is slow."""
        with self._watching:
            while True:
                if self._leading is not None:
                    await trio.sleep(_SLOW_S)
                else:
                    with trio.CancelScope() as self._slow:
                        await trio.sleep_forever()
                while (
                    self._leading is not None
                    and self._leading.started_s + _SLOW_S <= self.clock.monotonic_s()
                ):
                    self._take()
                    self._start()
                    if self._room() <= 0:
                        # There is no room for more, so waiting for the inbox would return at once.
                        await trio.sleep(_SLOW_S)
                        continue
                    with trio.move_on_after(_SLOW_S) as self._passing:
                        if not await self._inbox.wait():
                            return

    async def _wait_until_freed(self) -> None:
        if self._batcher.in_flight:
            self._freed = trio.Event()
            with trio.move_on_after(_SLOW_S):
                await self._freed.wait()

    async def _wait_for_message(self) -> bool:
        """Wait for a message or a slow partition. False if the inbox has ended."""
        slow_at_s = self._batcher.slow_at_s()
        if slow_at_s is None:
            return await self._inbox.wait()
        with trio.move_on_after(max(slow_at_s - self.clock.monotonic_s(), 0.001)):
            return await self._inbox.wait()
        return True

    def _take(self) -> None:
        for pending in self._inbox.receive_nowait(max(self._room(), 0)):
            if pending.key is not None:
                self._has_keys = True
            self._batcher.add(pending)

    def _room(self) -> int:
        """The number of messages that may still be queued here."""
        config, batcher = self.config, self._batcher
        waiting_max = config.waiting_per_topic_max if self._has_keys else config.batch_records_max
        if batcher.waiting >= waiting_max:
            # A silent log takes no batches: messages that the spool has answered meanwhile must not
            # keep new ones out.
            batcher.drop_answered()
        return waiting_max - batcher.waiting

    def _start(self) -> None:
        """Start each batch that can start."""
        self._look_up_if_due()
        now_s = self.clock.monotonic_s()
        while (batch := self._batcher.next_batch(now_s)) is not None:
            self._appends.start_soon(self._drive, batch)

    async def _drive(self, batch: PartitionBatch[Pending] | None) -> None:
        """Append one batch after another, and start others that have become possible."""
        while batch is not None:
            batch = await self._append(batch)
            if batch is not None and self._batcher.waiting:
                self._start()
        self._freed.set()

    async def _append(self, batch: PartitionBatch[Pending]) -> PartitionBatch[Pending] | None:
        """Append a batch. Returns the next batch to start, None if there is none."""
        await self._store(batch)
        self._batcher.release(batch)
        self._take()
        return self._batcher.next_batch(self.clock.monotonic_s())

    # Appending a batch.

    async def _store(self, batch: PartitionBatch[Pending]) -> None:
        """Append a batch; returns when its partition may be used again."""
        if batch.is_keyed and self.route.spool is not None:
            await self._join_kept(self.route.spool, batch.items)
        batch.drop_answered()
        pendings = batch.items
        if not pendings:
            return
        route = self.route
        route.measures.taken(batch.body_bytes)
        hedge = self._hedge_now
        if hedge is not None:
            await hedge.append(pendings, batch.partition)
            return
        dc = self.log.dc
        records = self._send(pendings, dc, Via.LOCAL.value)
        outcomes = await self.log.append(route.log_topic, batch.partition, records, route.topic.ack)
        took_s = self.clock.monotonic_s() - batch.started_s
        route.answered(pendings, dc, self._first + batch.partition, outcomes, took_s)
        self._conclude(dc, pendings, outcomes, took_s)

    def _conclude(
        self, dc: str, pendings: Sequence[Pending], outcomes: Sequence[Outcome], append_s: float
    ) -> None:
        """Settle each pending with its outcomes from that datacentre."""
        ended: list[Pending] = []
        at = 0
        for pending in pendings:
            outcome = outcomes[at]
            following = at + pending.count
            if type(outcome) is Stored and pending.count == 1 and pending.keeper is None:
                # The common case, as `conclude` would do it.
                if pending.state != SETTLED:
                    pending.end(outcome)
                    ended.append(pending)
            elif pending.conclude(outcomes[at:following]):
                ended.append(pending)
            at = following
        stored = stored_count(outcomes)
        if stored:
            self.route.measures.acknowledged(dc, stored, append_s)
        if ended:
            self.route.settled(ended, self.clock.monotonic_s())

    async def _join_kept(self, spool: Spool, pendings: Sequence[Pending]) -> None:
        """Spool the messages whose keys have older messages in the spool, so that they stay behind
        them.
        """
        behind = [each for each in pendings if each.is_behind(spool)]
        if not behind:
            return
        # First let the spool catch up: a busy key would never leave it if each message followed its
        # predecessor there.
        await spool.catch_up(
            self.route.log_topic,
            lambda: any(not each.is_done and each.is_behind(spool) for each in behind),
        )
        # Others may have been spooled meanwhile because their time was over, so check all.
        for pending in pendings:
            if pending.is_behind(spool):
                pending.join_kept()

    def _send(self, pendings: Sequence[Pending], dc: str, via: str) -> Sequence[Record]:
        """Mark these pendings as sent to that datacentre, and return their records."""
        count = 0
        for pending in pendings:
            pending.sent()
            count += pending.count
        for listener in self.route.listeners:
            listener.sent(pendings, dc, via)
        envelope = self.envelope
        if count == len(pendings):
            return [to_record(pending.messages[0], envelope, via) for pending in pendings]
        return joined([records_of(pending.messages, envelope, via) for pending in pendings])

    # The number of partitions.

    async def _know_partitions(self) -> bool:
        """Wait until the log has the topic. False if asked to stop while no publisher waits for an
        answer.

        Messages wait meanwhile, up to their deadlines. An unavailable log is not a failure of this
        actor; a restart would back off for longer than the log is down.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._drop_answered)
            partitions = await self._partitions()
            nursery.cancel_scope.cancel()
        if partitions is not None:
            self._batcher.grow(partitions)
        return partitions is not None

    async def _partitions(self) -> int | None:
        """Look up the number of partitions.

        1 if the own log does not answer and other datacentres can be used; None as
        `_know_partitions` returns False.
        """
        until_s = self.clock.monotonic_s() + _OWN_LOG_PATIENCE_S
        delay_s = _LOOKUP_FIRST_S
        while True:
            hedge = self._hedge_now
            self._looked_up_s = self.clock.monotonic_s()
            settings = None
            patience_s = math.inf if hedge is None else _OWN_LOG_PATIENCE_S
            with trio.move_on_after(patience_s) as self._asking_own:
                settings = await self._describe()
            now_s = self.clock.monotonic_s()
            if settings is not None:
                self.route.partitions, self._first = settings.partitions, settings.first
                return settings.partitions
            if self._inbox.is_closed and not self.route.drain.in_flight:
                return None
            if hedge is not None and hedge.decision.has_remote and now_s >= until_s:
                hedge.decision.is_own_known = False
                return 1
            await trio.sleep(delay_s)
            delay_s = min(delay_s * 2, _LOOKUP_MAX_S)

    async def _describe(self) -> TopicSettings | None:
        try:
            return await self.log.topics.describe(self.route.log_topic)
        except LogUnavailable:
            return None

    async def _find_own(self, decision: Decision) -> None:
        """Ask the own log for the topic's partitions until it answers; the other datacentres are
        used meanwhile.
        """
        delay_s = _LOOKUP_FIRST_S
        while (settings := await self._describe()) is None:
            await trio.sleep(delay_s)
            delay_s = min(delay_s * 2, _LOOKUP_MAX_S)
        self._batcher.rehash(settings.partitions)
        self.route.partitions = self._batcher.partitions
        decision.is_own_known = True

    def _look_up_if_due(self) -> None:
        now_s = self.clock.monotonic_s()
        if now_s >= self._looked_up_s + _LOOK_AGAIN_S:
            self._looked_up_s = now_s
            if self._hedge is None or self._hedge.decision.is_own_known:
                self._appends.start_soon(self._look_again)

    async def _look_again(self) -> None:
        """Look for added partitions. If the log does not answer, the old number stays."""
        settings = await self._describe()
        if settings is not None:
            self._batcher.grow(settings.partitions)
            self.route.partitions, self._first = self._batcher.partitions, settings.first

    async def _drop_answered(self) -> None:
        """Keep removing answered messages from the inbox while the log is silent. Otherwise
        messages that the spool has answered would fill it, and new ones would be refused.

        Deadlines are in order, so the oldest are answered first.
        """
        while True:
            await trio.sleep(_SLOW_S)
            self._inbox.drop_while(lambda pending: pending.is_answered)

    def _give_up(self) -> None:
        """Settle everything that is left when the actor ends (nothing, after an orderly stop). The
        spool settles the messages that it keeps.
        """
        flying, waiting = self._batcher.take_all()
        while left := self._inbox.receive_nowait(1_000):
            waiting += left
        unsent = UnavailableRecord("the topic's producer failed before the message was sent")
        unknown = UnknownRecord("the topic's producer failed; the message may be stored")
        outcomes: list[tuple[list[Pending], Outcome]] = [(flying, unknown), (waiting, unsent)]
        for pendings, outcome in outcomes:
            for pending in pendings:
                if pending.keeper is None:
                    pending.settle(outcome)
