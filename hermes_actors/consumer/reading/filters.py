"""Looks at each record as soon as it is read, with the subscription's filters of that moment."""

from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from functools import partial

from msgspec import Struct

from hermes_actors.consumer.delivery.measures import SubscriptionMeasures
from hermes_actors.consumer.delivery.parts import ConsumerParts
from hermes_actors.coordination.owned import Lease
from hermes_actors.filters.budget import Budget, BudgetSpent
from hermes_actors.filters.compiled import Candidate, Filters
from hermes_actors.filters.failures import FilterFailed
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.message import Message, UndecodableRecord, from_record, is_enveloped
from hermes_actors.model.record import StoredRecord
from hermes_actors.model.subscription import Filter
from hermes_actors.runtime.wakeup import Wakeup

_TOLD_FOR_MS = 3_600_000


class Filtered(Struct, frozen=True, gc=False):
    """The subscription does not want this message. `by` is the type of filter that said so."""

    by: str


class Exhausted(Struct, frozen=True, gc=False):
    """The message's filters would take longer than they may: it is given up. `detail` says why,
    `message` is what the record holds, if it had to be decoded.
    """

    detail: str
    message: Message | None = None


Seen = Message | Filtered | Exhausted | None
"""The finding on a record: its message if it had to be decoded; None: it was not looked into."""


class Later(Struct, frozen=True, gc=False):
    """Looking at the record takes too long for the loop: who reads waits for the verdict."""

    verdict: Callable[[], Awaitable[Seen]]


Screen = Callable[[StoredRecord], Seen | Later]


def let_pass(_record: StoredRecord) -> None:
    """The screen of a subscription without filters: nothing is decoded before it is taken up."""


class Screening:
    """The screening of one subscription's records by its filters; `on_screen` is told how to ask
    them.

    A filter that fails (the message is not JSON) leaves the message out, as in Hermes. A message
    that takes its filters longer than a message may is looked at beside the loop; one that takes
    longer than that is exhausted, which settles it. Both are counted, and told by `trouble`.
    """

    def __init__(
        self,
        live: LiveSubscription,
        parts: ConsumerParts,
        measures: SubscriptionMeasures,
        lease: Lease,
        on_screen: Callable[[Screen], None],
    ) -> None:
        self._make_id = parts.ids.message_id
        self._now_ms = parts.clock.now_ms
        self._aside = parts.aside
        self._measures = measures
        self._lease = lease
        self._on_screen = on_screen
        self._wanted = live.subscription.filters
        # What is compiled; a subscription without filters has nothing to compile.
        self._asked: list[Filter] = []
        # The last message took long enough for its clock to be looked at.
        self._is_costly = True
        self._changed = Wakeup()
        self._failed = _FilterTrouble("left out because a filter failed", self._now_ms)
        self._exhausted = _FilterTrouble("given up because filters took too long", self._now_ms)

    def adopt(self, live: LiveSubscription) -> None:
        """Judge by this version's filters what is read from soon on; what was read before stays
        judged.
        """
        self._wanted = live.subscription.filters
        self._changed.set()

    async def prepare(self) -> None:
        """Compile the latest filters. Raises FilterInvalid, and BudgetSpent for what takes long."""
        while self._wanted != self._asked:
            wanted = self._wanted
            screen: Screen = let_pass
            if wanted:
                screen = self._screen_of(await self._aside.compile(wanted, Filters), wanted)
            self._asked = wanted
            self._is_costly = True
            self._failed.forget()
            self._exhausted.forget()
            self._on_screen(screen)

    async def run(self) -> None:
        """Follow what is adopted, for ever."""
        while True:
            await self.prepare()
            await self._changed.wait()

    @property
    def trouble(self) -> str:
        """For people: that filters could not decide, within the last hour; "" when they could."""
        return "; ".join(filter(None, (self._exhausted.words, self._failed.words)))

    def _screen_of(self, filters: Filters, wanted: Iterable[Filter]) -> Screen:
        needs_message, rejects = filters.looks_at_headers, filters.rejects
        by_kind = {each.type: Filtered(each.type) for each in wanted}
        aside = self._aside

        def screen(record: StoredRecord) -> Seen | Later:
            message = None
            if needs_message or is_enveloped(record):
                try:
                    message = from_record(record, self._make_id)
                except UndecodableRecord:
                    # It becomes a dead letter when it is taken up.
                    return None
                candidate = Candidate(message.body, message.propagated)
            else:
                candidate = Candidate(record.value)
            if self._is_costly and aside.is_turn_spent:
                return Later(partial(in_turn, candidate, message))
            return look(candidate, message)

        def look(candidate: Candidate, message: Message | None) -> Seen | Later:
            budget = aside.on_loop()
            try:
                kind = rejects(candidate, budget)
            except FilterFailed as error:
                return self._on_failure(error)
            except BudgetSpent as spent:
                return Later(partial(verdict, candidate, message, spent))
            finally:
                self._is_costly = budget.used_s > 0
                aside.count(budget)
            return by_kind[kind] if kind else message

        async def in_turn(candidate: Candidate, message: Message | None) -> Seen:
            await aside.next_turn()
            match look(candidate, message):
                case Later(verdict):
                    return await verdict()
                case seen:
                    return seen

        async def verdict(
            candidate: Candidate, message: Message | None, spent: BudgetSpent
        ) -> Seen:
            def ask(budget: Budget) -> str:
                return rejects(candidate, budget)

            try:
                kind = await aside.ask(ask, candidate.body, spent)
            except FilterFailed as error:
                return self._on_failure(error)
            except BudgetSpent as error:
                # Its dead letter is seen by others, and another node may own the message by now.
                await self._lease.wait_opened()
                self._exhausted.add(str(error))
                return Exhausted(str(error), message)
            return by_kind[kind] if kind else message

        return screen

    def _on_failure(self, error: FilterFailed) -> Filtered:
        self._measures.filter_errors.value += 1
        self._failed.add(str(error))
        return Filtered("failed")


class _FilterTrouble:
    """How often something has happened, and the last time, for people."""

    def __init__(self, what: str, now_ms: Callable[[], int]) -> None:
        self._what = what
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
    def words(self) -> str:
        """The count and the last event, for an hour after it; else ""."""
        if not self._count or self._now_ms() - self._last_ms > _TOLD_FOR_MS:
            return ""
        moment = datetime.fromtimestamp(self._last_ms / 1_000, UTC)
        return f"{self._what}: {self._count}, the last at {moment:%Y-%m-%dT%TZ}: {self._last}"
