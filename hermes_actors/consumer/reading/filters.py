"""Applies a subscription's current filters to each record when it is read, and turns Avro records
into the body to push.
"""

from collections.abc import Awaitable, Callable
from functools import partial

from msgspec import Struct

from hermes_actors.consumer.delivery.bodies import Bodies, NotReadable, OpenedAvro, Undeliverable
from hermes_actors.consumer.delivery.measures import SubscriptionMeasures
from hermes_actors.consumer.delivery.parts import ConsumerParts
from hermes_actors.coordination.lease import Lease
from hermes_actors.errors import HermesError, Refused
from hermes_actors.filters.compiled import Candidate, Filters, is_soon_compiled
from hermes_actors.filters.failures import FilterFailed, FilterInvalid, TooLong
from hermes_actors.filters.loop_time import LoopTime
from hermes_actors.filters.work import COMPILE_CPU_S, MESSAGE_CPU_S, Verdict, problems, verdict
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.dead_letter import DiscardReason
from hermes_actors.model.message import (
    Headers,
    Message,
    UndecodableRecord,
    from_record,
    is_avro,
    is_enveloped,
)
from hermes_actors.model.record import StoredRecord
from hermes_actors.model.subscription import Filter, Tombstones
from hermes_actors.runtime.wakeup import Wakeup
from hermes_actors.schema.avro import AvroSchema
from hermes_actors.status.reasons import Code, Reason, because

_TOLD_FOR_MS = 3_600_000
_AGAIN_S = 1.0
_SLOW_S = 0.0003
"""If filters take longer than this on the loop for one message, they run in a worker for a while.
"""

_SLOW_FOR_S = 60.0


class Filtered(Struct, frozen=True, gc=False):
    """A filter rejected the message. `by` is the type of that filter."""

    by: str


class Exhausted(Struct, frozen=True, gc=False):
    """The message is given up: its filters exceed their time limit, or its Avro cannot be read.
    `detail` says why; `message` is the decoded record, if it had to be decoded.
    """

    detail: str
    message: Message | None = None
    reason: DiscardReason = DiscardReason.FILTER_TIME


class Postponed(Struct, frozen=True, gc=False):
    """The record cannot be read now. Its partition pauses for `again_s`; the others go on."""

    again_s: float


Seen = Message | Filtered | Exhausted | Postponed | None
"""The result for a record: its message if it had to be decoded, None if it was not inspected."""


class Later(Struct, frozen=True, gc=False):
    """Inspecting the record takes too long for the loop; the reader awaits `verdict`."""

    verdict: Callable[[], Awaitable[Seen]]


Screen = Callable[[StoredRecord], Seen | Later]


def let_pass(_record: StoredRecord) -> None:
    """The screen for a subscription without filters to a JSON topic. Records are decoded later,
    when they are dispatched.
    """


class Screening:
    """Screens one subscription's records with its filters, through `screen`. A filter of the body
    leaves tombstones out.

    If a filter fails, for instance because the message is not JSON, the message is filtered out, as
    in Hermes. Slow filters run in a worker; a message whose filters exceed the time limit there
    becomes a dead letter. Both cases are counted and shown in `reasons`.
    """

    def __init__(
        self,
        live: LiveSubscription,
        parts: ConsumerParts,
        measures: SubscriptionMeasures,
        lease: Lease,
        bodies: Bodies,
    ) -> None:
        self._name = str(live.name)
        self._now_s = parts.clock.monotonic_s
        self._pool = parts.pool
        self._measures = measures
        self._lease = lease
        self.screen: Screen = let_pass
        self._bodies = bodies
        self._wanted = tuple(live.subscription.filters)
        self.skips_tombstones = live.subscription.tombstones is Tombstones.SKIP
        self._asked: tuple[Filter, ...] = ()
        # None: filters run in a worker only.
        self._filters: Filters | None = None
        self._slow_until_s = 0.0
        self._changed = Wakeup()
        self._is_prepared = False
        now_ms = parts.clock.now_ms
        self._failed = _FilterTrouble(Code.FILTERS_FAILED, now_ms)
        self._exhausted = _FilterTrouble(Code.FILTERS_SLOW, now_ms)
        self._unread = _FilterTrouble(Code.AVRO_UNREADABLE, now_ms)
        self._postponed = _FilterTrouble(Code.AVRO_WAITS, now_ms)

    def adopt(self, live: LiveSubscription) -> None:
        """Use this version's filters for records read from now on; records already read keep their
        result.
        """
        self._wanted = tuple(live.subscription.filters)
        self.skips_tombstones = live.subscription.tombstones is Tombstones.SKIP
        self._changed.set()

    async def prepare(self) -> None:
        """Compile the latest filters. Raises FilterInvalid, or HermesError if compiling takes too
        long.
        """
        while self._wanted != self._asked or not self._is_prepared:
            wanted, filters = self._wanted, None
            if is_soon_compiled(wanted):
                filters = Filters(wanted)
            elif found := await self._pool.ask(self._name, COMPILE_CPU_S, problems, wanted):
                raise FilterInvalid("filters", "; ".join(found))
            self._asked, self._filters = wanted, filters
            self._is_prepared = True
            self._slow_until_s = 0.0
            self._failed.forget()
            self._exhausted.forget()
            is_looked_at = wanted or self._bodies.is_of_avro
            self.screen = self.look if is_looked_at else let_pass

    async def run(self) -> None:
        """Compile each adopted version's filters. Never ends."""
        while True:
            await self.prepare()
            await self._changed.wait()

    @property
    def reasons(self) -> list[Reason]:
        """Filters that failed, and messages that could not be read, within the last hour."""
        told = (self._postponed, self._unread, self._exhausted, self._failed)
        return [reason for each in told if (reason := each.reason) is not None]

    def look(self, record: StoredRecord) -> Seen | Later:
        """Decode a record if it is Avro or has an envelope or headers to filter by; then apply the
        filters.
        """
        bodies, wanted = self._bodies, self._asked
        message = opened = None
        of_body = next((each.type for each in wanted if each.type != "header"), "")
        if of_body and record.is_tombstone:
            return Filtered(of_body)
        asks_headers = any(each.type == "header" for each in wanted)
        if asks_headers or bodies.is_of_avro or is_enveloped(record) or is_avro(record):
            try:
                message = bodies.of_topic(record, from_record(record))
                opened = bodies.open(record, message, is_looked_into=bool(of_body))
            except UndecodableRecord:
                # It becomes a dead letter when it is dispatched.
                return None
            except NotReadable as error:
                return self._put_off(error)
            except Undeliverable as error:
                return Later(partial(self._given_up, error, message))
        if opened is not None and not bodies.is_soon_read(opened):
            return Later(partial(self._read_in_worker, opened))
        candidate = Candidate(record.value)
        if opened is not None:
            decode = partial(bodies.document, opened)
            candidate = Candidate(opened.avro, opened.message.propagated, decode)
        elif message is not None:
            candidate = Candidate(message.body, message.propagated)
        if self._filters is None or self._now_s() < self._slow_until_s:
            return Later(partial(self._ask_worker, candidate, message, opened))
        return self._ask_here(self._filters, candidate, message, opened)

    def _ask_here(
        self,
        filters: Filters,
        candidate: Candidate,
        message: Message | None,
        opened: OpenedAvro | None,
    ) -> Seen | Later:
        time = LoopTime(self._pool.cpu_s)
        try:
            kind = filters.rejects(candidate, time)
            if kind:
                return Filtered(kind)
            return message if opened is None else self._bodies.passed_on(opened, candidate.decoded)
        except FilterFailed as error:
            return self._on_failure(str(error))
        except Undeliverable as error:
            return Later(partial(self._given_up, error, message))
        except TooLong:
            return Later(partial(self._ask_worker, candidate, message, opened))
        finally:
            if time.used_s() > _SLOW_S:
                self._slow_until_s = self._now_s() + _SLOW_FOR_S

    async def _ask_worker(
        self, candidate: Candidate, message: Message | None, opened: OpenedAvro | None
    ) -> Seen:
        try:
            body = candidate.body
            if opened is not None:
                body = AvroSchema.json_of(candidate.document(), keeps_metadata=True)
            seen = await self._rejection(body, candidate.propagated, message, opened is not None)
            if seen is not None:
                return seen
            return message if opened is None else self._bodies.passed_on(opened, candidate.decoded)
        except Undeliverable as error:
            return await self._given_up(error, message)

    async def _read_in_worker(self, opened: OpenedAvro) -> Seen:
        message = opened.message
        try:
            if self._asked:
                body = await self._bodies.json_aside(opened, keeps_metadata=True)
                seen = await self._rejection(body, message.propagated, message, True)
                if seen is not None:
                    return seen
            return await self._bodies.passed_on_aside(opened)
        except NotReadable as error:
            return self._put_off(error)
        except Undeliverable as error:
            return await self._given_up(error, message)

    async def _rejection(
        self, body: bytes, propagated: Headers, message: Message | None, is_of_avro: bool
    ) -> Filtered | Exhausted | Postponed | None:
        """A worker's verdict on a message; None if all filters pass."""
        args = (self._asked, body, propagated, is_of_avro)
        try:
            found: Verdict = await self._pool.ask(self._name, MESSAGE_CPU_S, verdict, *args)
        except Refused as error:
            # A dead letter is visible to others, and another node may own the message by now.
            await self._lease.wait_opened()
            detail = f"its filters: {error.message}"
            self._exhausted.add(detail)
            return Exhausted(detail, message)
        except HermesError as error:
            return self._put_off(NotReadable(error.message, _AGAIN_S))
        if found.failure:
            return self._on_failure(found.failure)
        return Filtered(found.rejected_by) if found.rejected_by else None

    def _put_off(self, error: NotReadable) -> Postponed:
        self._postponed.add(str(error))
        return Postponed(error.again_s)

    async def _given_up(self, error: Undeliverable, message: Message | None) -> Exhausted:
        # A dead letter is visible to others, and another node may own the message by now.
        await self._lease.wait_opened()
        self._unread.add(str(error))
        return Exhausted(str(error), message, error.reason)

    def _on_failure(self, failure: str) -> Filtered:
        self._measures.filter_errors.value += 1
        self._failed.add(failure)
        return Filtered("failed")


class _FilterTrouble:
    """How often a kind of failure has happened, and its last occurrence."""

    def __init__(self, code: Code, now_ms: Callable[[], int]) -> None:
        self._code = code
        self._now_ms = now_ms
        self.forget()

    def forget(self) -> None:
        self._count = self._last_ms = 0
        self._last = ""

    def add(self, detail: str) -> None:
        """Count one more failure."""
        self._count += 1
        self._last, self._last_ms = detail, self._now_ms()

    @property
    def reason(self) -> Reason | None:
        """The count and the last failure, for an hour after it; else None."""
        if not self._count or self._now_ms() - self._last_ms > _TOLD_FOR_MS:
            return None
        return because(self._code, count=self._count, at_ms=self._last_ms, detail=self._last)
