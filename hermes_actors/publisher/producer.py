"""Appends what is published to one topic, in batches; each publication is settled exactly once.

While an append is in flight nothing is done for messages that could not start anyway: they wait
in the mailbox and are the next batch. That is what makes a loaded broker cheap.
"""

from collections.abc import Sequence
from typing import cast

import trio

from hermes_actors.actors.mailbox import Inbox
from hermes_actors.log.base import (
    Log,
    LogUnavailable,
    Outcome,
    Stored,
    UnavailableRecord,
    UnknownRecord,
    stored_count,
)
from hermes_actors.model.message import Envelope, Message, to_record
from hermes_actors.model.record import Record
from hermes_actors.publisher.batching import Batch, Batcher
from hermes_actors.publisher.bundle import Bundle, joined
from hermes_actors.publisher.publication import Publication, Route
from hermes_actors.runtime.clock import Clock

_SLOW_S = 0.020
_LOOKUP_FIRST_S = 0.02
_LOOKUP_MAX_S = 1.0
_LOOK_AGAIN_S = 30.0


class TopicProducer:
    """One live topic's producer.

    At most `waiting_max` messages with keys wait here beside those in the mailbox; `first` is the
    partition of the first batch without keys.
    """

    def __init__(
        self,
        route: Route,
        log: Log,
        clock: Clock,
        *,
        envelope: Envelope = Envelope.NATIVE,
        records_max: int = 1_000,
        bytes_max: int = 1_000_000,
        waiting_max: int = 10_000,
        first: int = 0,
    ) -> None:
        self._route = route
        self._log = log
        self._clock = clock
        self._envelope = envelope
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._waiting_max = waiting_max
        self._first = first
        self._has_keys = False
        self._freed = trio.Event()
        self._leading: Batch | None = None
        self._watched = trio.Event()
        self._watching = trio.CancelScope()
        self._passing = trio.CancelScope()
        self._looked_up = (-1, 0.0)

    async def run(self, inbox: Inbox[Publication]) -> None:
        """Append until the inbox ends; what waits then goes out first."""
        self._route.is_open = True
        batcher: Batcher | None = None
        try:
            partitions = await self._partitions(inbox)
            if partitions is None:
                return
            batcher = Batcher(
                partitions,
                records_max=self._records_max,
                bytes_max=self._bytes_max,
                first=self._first,
                slow_s=_SLOW_S,
            )
            async with trio.open_nursery() as appends:
                appends.start_soon(self._watch, inbox, batcher, appends)
                await self._feed(inbox, batcher, appends)
                self._watching.cancel()
        finally:
            self._route.is_open = False
            _give_up(inbox, batcher)

    async def _feed(
        self, inbox: Inbox[Publication], batcher: Batcher, appends: trio.Nursery
    ) -> None:
        """Start appends as messages come, until the inbox has ended."""
        while await inbox.wait():
            self._take(inbox, batcher)
            if self._has_keys:
                return await self._feed_keyed(inbox, batcher, appends)
            self._look_up_if_due(batcher, appends)
            batch = batcher.next_batch(self._clock.monotonic_s())
            # Without keys a message cannot be sent while a batch is in flight, so nobody is woken
            # for it: this very task appends, and finds it when the append has ended.
            if batch is not None:
                self._watched.set()
                await self._lead(batch, inbox, batcher)
            else:
                await self._wait_until_freed(batcher)
        return None

    async def _feed_keyed(
        self, inbox: Inbox[Publication], batcher: Batcher, appends: trio.Nursery
    ) -> None:
        """The same for a topic with keys, whose idle partitions do not wait for busy ones."""
        while True:
            self._take(inbox, batcher)
            self._start(inbox, batcher, appends)
            if batcher.waiting >= self._waiting_max:
                await self._wait_until_freed(batcher)
            elif not await self._wait_for_message(inbox, batcher):
                return

    async def _lead(self, batch: Batch | None, inbox: Inbox[Publication], batcher: Batcher) -> None:
        """Append one batch after the other, until nothing waits."""
        while batch is not None:
            self._leading = batch
            await self._append(batch)
            batcher.release(batch)
            self._take(inbox, batcher)
            batch = batcher.next_batch(self._clock.monotonic_s())
        self._leading = None
        # A message wakes one reader of the inbox, and that must be `_feed` again, not `_watch`.
        self._passing.cancel()

    async def _watch(
        self, inbox: Inbox[Publication], batcher: Batcher, appends: trio.Nursery
    ) -> None:
        """Read the inbox for `_lead` while its batch takes unusually long."""
        with self._watching:
            while True:
                if self._leading is None:
                    self._watched = trio.Event()
                    await self._watched.wait()
                await trio.sleep(_SLOW_S)
                while (
                    self._leading is not None
                    and self._leading.started_s + _SLOW_S <= self._clock.monotonic_s()
                ):
                    self._take(inbox, batcher)
                    self._start(inbox, batcher, appends)
                    if self._room(batcher) <= 0:
                        # What waits in the inbox cannot be taken: waiting for it would not wait.
                        await trio.sleep(_SLOW_S)
                        continue
                    with trio.move_on_after(_SLOW_S) as self._passing:
                        if not await inbox.wait():
                            return

    async def _wait_until_freed(self, batcher: Batcher) -> None:
        if not batcher.in_flight:
            return
        self._freed = trio.Event()
        with trio.move_on_after(_SLOW_S):
            await self._freed.wait()

    async def _wait_for_message(self, inbox: Inbox[Publication], batcher: Batcher) -> bool:
        """True when it is time to look again, False when the inbox has ended."""
        slow_at_s = batcher.slow_at_s()
        if slow_at_s is None:
            return await inbox.wait()
        with trio.move_on_after(max(slow_at_s - self._clock.monotonic_s(), 0.001)):
            return await inbox.wait()
        return True

    def _take(self, inbox: Inbox[Publication], batcher: Batcher) -> None:
        for publication in inbox.receive_nowait(max(self._room(batcher), 0)):
            if publication.key is not None:
                self._has_keys = True
            batcher.add(publication)

    def _room(self, batcher: Batcher) -> int:
        """How many more messages may wait here."""
        return (self._waiting_max if self._has_keys else self._records_max) - batcher.waiting

    def _start(self, inbox: Inbox[Publication], batcher: Batcher, appends: trio.Nursery) -> None:
        """Start every batch that may start."""
        self._look_up_if_due(batcher, appends)
        now_s = self._clock.monotonic_s()
        while (batch := batcher.next_batch(now_s)) is not None:
            appends.start_soon(self._drive, batch, inbox, batcher, appends)

    async def _drive(
        self, batch: Batch, inbox: Inbox[Publication], batcher: Batcher, appends: trio.Nursery
    ) -> None:
        """Append a batch, settle it, and go on with the next one that may start then."""
        following: Batch | None = batch
        while following is not None:
            await self._append(following)
            batcher.release(following)
            self._take(inbox, batcher)
            following = batcher.next_batch(self._clock.monotonic_s())
            if following is not None and batcher.waiting:
                self._start(inbox, batcher, appends)
        self._freed.set()

    async def _append(self, batch: Batch) -> None:
        await self._drop_held(batch)
        batch.drop_answered()
        publications = cast("list[Publication]", batch.items)
        if not publications:
            return
        route = self._route
        route.measures.sent(batch.count, batch.body_bytes)
        for publication in publications:
            publication.is_sent = True
        is_plain = batch.count == len(publications)
        records = self._records(publications) if is_plain else self._joined(publications)
        outcomes = await self._log.append(
            route.log_topic, batch.partition, records, route.topic.ack
        )
        self._conclude(batch, publications, outcomes)

    def _conclude(
        self, batch: Batch, publications: list[Publication], outcomes: Sequence[Outcome]
    ) -> None:
        """Tell each publication what became of it."""
        now_s = self._clock.monotonic_s()
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
                self._route.measures.stored_together(now_s - publication.started_s, answered)
            at = following
        if stored:
            self._route.measures.stored(latencies_s, stored, now_s - batch.started_s)

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
        for publication in behind:
            if publication.is_behind(buffer):
                publication.join_kept()

    def _joined(self, publications: list[Publication]) -> Sequence[Record]:
        """The records of single messages and bundles, in order."""
        clock, dc, envelope = self._clock, self._log.dc, self._envelope
        zero_ms = clock.now_ms() - clock.monotonic_s() * 1_000
        return joined(
            [
                each.records(zero_ms, dc, envelope)
                if isinstance(each, Bundle)
                else self._records([each])
                for each in publications
            ]
        )

    def _records(self, publications: list[Publication]) -> Sequence[Record]:
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
                )
                if each.extras is None
                else Message(
                    id=each.id,
                    body=each.body,
                    published_at_ms=int(zero_ms + each.started_s * 1_000),
                    key=each.key,
                    propagated=each.extras.propagated,
                    dc=dc,
                    traceparent=each.extras.traceparent,
                    attributes=each.extras.attributes,
                ),
                envelope,
            )
            for each in publications
        ]

    async def _partitions(self, inbox: Inbox[Publication]) -> int | None:
        """The topic's number of partitions, waiting until the log has the topic.

        None when asked to stop while nobody waits for an answer: the log need not be waited for.

        Publications wait meanwhile, up to their deadlines: a log that is down is no failure of
        this actor, which would back off for longer than the log is away.
        """
        delay_s = _LOOKUP_FIRST_S
        while True:
            version = self._route.version
            try:
                settings = await self._log.describe_topic(self._route.log_topic)
            except LogUnavailable:
                settings = None
            if settings is not None:
                self._looked_up = (version, self._clock.monotonic_s())
                self._route.partitions = settings.partitions
                return settings.partitions
            if inbox.is_closed and not self._route.tally.in_flight:
                return None
            await trio.sleep(delay_s)
            delay_s = min(delay_s * 2, _LOOKUP_MAX_S)

    def _look_up_if_due(self, batcher: Batcher, appends: trio.Nursery) -> None:
        version, at_s = self._looked_up
        now_s = self._clock.monotonic_s()
        if version != self._route.version or now_s >= at_s + _LOOK_AGAIN_S:
            self._looked_up = (self._route.version, now_s)
            appends.start_soon(self._look_again, batcher)

    async def _look_again(self, batcher: Batcher) -> None:
        """Partitions may have been added; when the log does not say, the old number holds."""
        try:
            settings = await self._log.describe_topic(self._route.log_topic)
        except LogUnavailable:
            return
        if settings is not None:
            batcher.grow(settings.partitions)
            self._route.partitions = batcher.partitions


def _give_up(inbox: Inbox[Publication], batcher: Batcher | None) -> None:
    """Settle all that is left when the actor ends; nothing is left after an orderly stop."""
    flying, waiting = batcher.take_all() if batcher is not None else ([], [])
    unsent = UnavailableRecord("the topic's producer failed before the message was sent")
    unknown: Outcome = UnknownRecord("the topic's producer failed; the message may be stored")
    for publication in cast("list[Publication]", flying):
        publication.settle(unknown)
    for publication in cast("list[Publication]", waiting):
        publication.settle(unsent)
    while left := inbox.receive_nowait(1_000):
        for publication in left:
            publication.settle(unsent)
