"""Looks at each record as soon as it is read, with the subscription's filters of that moment, and
makes of a message in Avro what is pushed.
"""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial

import msgspec
from msgspec import Struct

from hermes_actors.consumer.delivery.bodies import Bodies, NotReadable, OpenedAvro, Undeliverable
from hermes_actors.consumer.delivery.measures import SubscriptionMeasures
from hermes_actors.consumer.delivery.parts import ConsumerParts
from hermes_actors.coordination.lease import Lease
from hermes_actors.filters.budget import Budget, BudgetSpent
from hermes_actors.filters.compiled import Candidate, Filters
from hermes_actors.filters.failures import FilterFailed
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.dead_letter import DiscardReason
from hermes_actors.model.message import (
    Message,
    UndecodableRecord,
    from_record,
    is_avro,
    is_enveloped,
)
from hermes_actors.model.record import StoredRecord
from hermes_actors.model.subscription import Filter
from hermes_actors.runtime.wakeup import Wakeup
from hermes_actors.status.reasons import Code, Reason, because

_TOLD_FOR_MS = 3_600_000


class Filtered(Struct, frozen=True, gc=False):
    """The subscription does not want this message. `by` is the type of filter that said so."""

    by: str


class Exhausted(Struct, frozen=True, gc=False):
    """The message is given up: its filters would take longer than they may, or its Avro cannot be
    read. `detail` says why, `message` is what the record holds, if it had to be decoded.
    """

    detail: str
    message: Message | None = None
    reason: DiscardReason = DiscardReason.FILTER_TIME


class Postponed(Struct, frozen=True, gc=False):
    """The record cannot be read now; its partition waits for `again_s`, the others go on."""

    again_s: float


Seen = Message | Filtered | Exhausted | Postponed | None
"""The finding on a record: its message if it had to be decoded; None: it was not looked into."""


class Later(Struct, frozen=True, gc=False):
    """Looking at the record takes too long for the loop: who reads waits for the verdict."""

    verdict: Callable[[], Awaitable[Seen]]


Screen = Callable[[StoredRecord], Seen | Later]


def let_pass(_record: StoredRecord) -> None:
    """The screen of a subscription without filters to a topic of JSON: nothing is decoded before it
    is taken up.
    """


class Screening:
    """The screening of one subscription's records by its filters; `screen` asks them.

    A filter that fails (the message is not JSON) leaves the message out, as in Hermes. A message
    that takes its filters longer than a message may is looked at beside the loop; one that takes
    longer than that is exhausted, which settles it. Both are counted, and among the `reasons`.
    """

    def __init__(
        self,
        live: LiveSubscription,
        parts: ConsumerParts,
        measures: SubscriptionMeasures,
        lease: Lease,
        bodies: Bodies,
    ) -> None:
        self._make_id = parts.ids.message_id
        self._now_ms = parts.clock.now_ms
        self._aside = parts.aside
        self._measures = measures
        self._lease = lease
        self.screen: Screen = let_pass
        self._bodies = bodies
        self._wanted = live.subscription.filters
        # What is compiled; a subscription without filters has nothing to compile.
        self._asked: list[Filter] = []
        # The last message took long enough for its clock to be looked at.
        self._is_costly = True
        self._changed = Wakeup()
        self._asks_none = self._screen_of(None, ())
        self._is_prepared = False
        self._failed = _FilterTrouble(Code.FILTERS_FAILED, self._now_ms)
        self._exhausted = _FilterTrouble(Code.FILTERS_SLOW, self._now_ms)
        self._unread = _FilterTrouble(Code.AVRO_UNREADABLE, self._now_ms)
        self._postponed = _FilterTrouble(Code.AVRO_WAITS, self._now_ms)

    def adopt(self, live: LiveSubscription) -> None:
        """Judge by this version's filters what is read from soon on; what was read before stays
        judged.
        """
        self._wanted = live.subscription.filters
        self._changed.set()

    async def prepare(self) -> None:
        """Compile the latest filters. Raises FilterInvalid, and BudgetSpent for what takes long."""
        while self._wanted != self._asked or not self._is_prepared:
            wanted = self._wanted
            screen: Screen = self.read_avro if self._bodies.is_of_avro else let_pass
            if wanted:
                screen = self._screen_of(await self._aside.compile(wanted, Filters), wanted)
            self._asked = wanted
            self._is_prepared = True
            self._is_costly = True
            self._failed.forget()
            self._exhausted.forget()
            self.screen = screen

    async def run(self) -> None:
        """Follow what is adopted, for ever."""
        while True:
            await self.prepare()
            await self._changed.wait()

    @property
    def reasons(self) -> list[Reason]:
        """That filters could not decide, or messages could not be read, within the last hour."""
        told = (self._postponed, self._unread, self._exhausted, self._failed)
        return [reason for each in told if (reason := each.reason) is not None]

    def _screen_of(self, filters: Filters | None, wanted: Iterable[Filter]) -> Screen:
        """The screen that asks these filters; with None it passes all messages."""
        bodies, aside = self._bodies, self._aside
        needs_message = filters is not None and filters.looks_at_headers
        is_looked_into = filters is not None and filters.looks_into_bodies
        needs_message = needs_message or bodies.is_of_avro
        by_kind = {each.type: Filtered(each.type) for each in wanted}

        def rejects(candidate: Candidate, budget: Budget) -> str:
            return "" if filters is None else filters.rejects(candidate, budget)

        def screen(record: StoredRecord) -> Seen | Later:
            message = opened = None
            if needs_message or is_enveloped(record) or is_avro(record):
                try:
                    message = bodies.of_topic(record, from_record(record, self._make_id))
                    opened = bodies.open(record, message, is_looked_into=is_looked_into)
                except UndecodableRecord:
                    # It becomes a dead letter when it is taken up.
                    return None
                except (NotReadable, Undeliverable) as error:
                    return self._on_unreadable(error, message)
            if message is None:
                candidate = Candidate(record.value)
            elif opened is None:
                candidate = Candidate(message.body, message.propagated)
            elif not bodies.is_soon_read(opened):
                return Later(partial(read_aside, record, opened))
            else:
                decode = partial(bodies.document, opened)
                candidate = Candidate(opened.avro, message.propagated, decode)
            if self._is_costly and aside.is_turn_spent:
                return Later(partial(in_turn, candidate, message, opened))
            return look(candidate, message, opened)

        def look(
            candidate: Candidate, message: Message | None, opened: OpenedAvro | None
        ) -> Seen | Later:
            budget = aside.on_loop()
            try:
                kind = rejects(candidate, budget)
                if kind:
                    return by_kind[kind]
                return message if opened is None else passed_on(opened, candidate, budget)
            except FilterFailed as error:
                return self._on_failure(error)
            except Undeliverable as error:
                return self._on_unreadable(error, message)
            except BudgetSpent as spent:
                return Later(partial(verdict, candidate, message, opened, spent))
            finally:
                self._is_costly = budget.used_s > 0
                aside.count(budget)

        def passed_on(opened: OpenedAvro, candidate: Candidate, budget: Budget) -> Message:
            # What it takes is told beforehand, and counts towards the turn.
            with suppress(BudgetSpent):
                budget.look()
            passed = bodies.passed_on(opened, candidate.decoded)
            with suppress(BudgetSpent):
                budget.look()
            return passed

        async def in_turn(
            candidate: Candidate, message: Message | None, opened: OpenedAvro | None
        ) -> Seen:
            await aside.next_turn()
            match look(candidate, message, opened):
                case Later(verdict):
                    return await verdict()
                case seen:
                    return seen

        async def verdict(
            candidate: Candidate,
            message: Message | None,
            opened: OpenedAvro | None,
            spent: BudgetSpent,
        ) -> Seen:
            def ask(budget: Budget) -> str:
                return rejects(candidate, budget)

            try:
                kind = await aside.ask(ask, candidate.body, spent)
                if kind:
                    return by_kind[kind]
                return message if opened is None else bodies.passed_on(opened, candidate.decoded)
            except FilterFailed as error:
                return self._on_failure(error)
            except Undeliverable as error:
                return await self._given_up(error, message)
            except BudgetSpent as error:
                # Its dead letter is seen by others, and another node may own the message by now.
                await self._lease.wait_opened()
                self._exhausted.add(str(error))
                return Exhausted(str(error), message)

        async def read_aside(record: StoredRecord, opened: OpenedAvro) -> Seen:
            message = opened.message
            try:
                if is_looked_into:
                    seen = await asked_aside(record, opened)
                    if seen is not message:
                        return seen
                return await bodies.passed_on_aside(record, opened)
            except NotReadable as error:
                return self._put_off(error)
            except Undeliverable as error:
                return await self._given_up(error, message)

        async def asked_aside(record: StoredRecord, opened: OpenedAvro) -> Seen:
            """Ask the filters of what is read beside the loop, with all that is in it."""
            message = opened.message
            whole = await bodies.json_aside(record, opened, keeps_metadata=True)
            candidate = Candidate(whole, message.propagated, msgspec.json.decode)
            return await in_turn(candidate, message, None)

        return screen

    def read_avro(self, record: StoredRecord) -> Seen | Later:
        """The screen of what is not asked by any filter, and may be Avro."""
        return self._asks_none(record)

    def _on_unreadable(
        self, error: NotReadable | Undeliverable, message: Message | None
    ) -> Postponed | Later:
        if isinstance(error, NotReadable):
            return self._put_off(error)
        return Later(partial(self._given_up, error, message))

    def _put_off(self, error: NotReadable) -> Postponed:
        self._postponed.add(str(error))
        return Postponed(error.again_s)

    async def _given_up(self, error: Undeliverable, message: Message | None) -> Exhausted:
        # Its dead letter is seen by others, and another node may own the message by now.
        await self._lease.wait_opened()
        self._unread.add(str(error))
        return Exhausted(str(error), message, error.reason)

    def _on_failure(self, error: FilterFailed) -> Filtered:
        self._measures.filter_errors.value += 1
        self._failed.add(str(error))
        return Filtered("failed")


class _FilterTrouble:
    """How often something has happened, and the last time."""

    def __init__(self, code: Code, now_ms: Callable[[], int]) -> None:
        self._code = code
        self._now_ms = now_ms
        self.forget()

    def forget(self) -> None:
        """Forget all that has happened."""
        self._count = self._last_ms = 0
        self._last = ""

    def add(self, detail: str) -> None:
        """Count one more event, with its detail."""
        self._count += 1
        self._last, self._last_ms = detail, self._now_ms()

    @property
    def reason(self) -> Reason | None:
        """The count and the last event, for an hour after it; else None."""
        if not self._count or self._now_ms() - self._last_ms > _TOLD_FOR_MS:
            return None
        return because(self._code, count=self._count, at_ms=self._last_ms, detail=self._last)
