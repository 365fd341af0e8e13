"""Copies the changes that another datacentre accepts into the own metadata log, until both hold the
same.

Only changes that originate there are copied, so copies never circulate. The own fold remembers, by
the log's id, how far each log was copied: a restart continues there, and a replaced log is copied
from its start. Anything missed (because a log was lost) is found by comparing digests, and sent
again.
"""

import random
from collections.abc import Sequence

import trio

from hermes_actors.actors.supervisor import run_until
from hermes_actors.log.base import LATEST, Log, Stored
from hermes_actors.log.tail import LogChanged, LogTail
from hermes_actors.metadata.commands import Copy, encode
from hermes_actors.metadata.state import MetadataState, Register
from hermes_actors.metadata.trail import replaced_header
from hermes_actors.metadata.view import Metadata, lacking_in
from hermes_actors.model.record import Record, StoredRecord
from hermes_actors.model.topic import Ack
from hermes_actors.runtime.backoff import Backoff
from hermes_actors.runtime.clock import Clock

_BATCH_RECORDS_MAX = 100
_BATCH_BYTES_MAX = 1_048_576
_QUIET_S = 2.0
_POLL_INTERVAL_S = 0.05


class Replicator:
    """Copies from one other datacentre's log to the own one; one append is in flight at a time.

    `copied` counts copied changes, `resent` the registers sent again after a comparison. `trouble`
    says why it cannot copy now; empty string if it can.
    """

    def __init__(
        self,
        source: Log,
        own: Metadata,
        *,
        clock: Clock,
        rng: random.Random,
        digest_interval_s: float = 60.0,
        answer_timeout_s: float = 5.0,
    ) -> None:
        assert source.dc != own.dc, "a datacentre does not copy from itself"
        self.copied = 0
        self.resent = 0
        self.trouble = ""
        self._source = source
        self._own = own
        self._clock = clock
        self._digest_interval_s = digest_interval_s
        self._answer_timeout_s = answer_timeout_s
        self._state = MetadataState()
        self._last: StoredRecord | None = None
        self._tail = LogTail(
            source,
            own.topic,
            Backoff(rng),
            records_max=_BATCH_RECORDS_MAX,
            bytes_max=_BATCH_BYTES_MAX,
            quiet_s=_QUIET_S,
            answer_timeout_s=answer_timeout_s,
        )
        self._append_backoff = Backoff(rng)
        # Records below this offset were in the source when this reading began; they are read as
        # they are now.
        self._settled_below = 0
        self._compare_at_s = 0.0

    async def run(self, stop: trio.Event) -> None:
        """Copy until asked to stop."""
        await run_until(stop, self._replicate, self._compare_after_refolds)

    async def _compare_after_refolds(self) -> None:
        """Compare soon after the own log was read again: it may have lost copies.

        It may also have lost its own changes; the other datacentre's replicator does the same for
        them.
        """
        own = self._own
        while True:
            await own.wait_refolded(own.refolds)
            await own.wait_current()
            self._compare_at_s = trio.current_time()

    async def _replicate(self) -> None:
        # Also at the start: the own log may have been replaced.
        self._compare_at_s = trio.current_time()
        await self._tail.run(self._copy_all, self._fails, self._begin_again, "a log")

    def _fails(self, reason: str) -> None:
        self.trouble = f"{self._source.dc} to {self._own.dc}: {reason}"

    def _begin_again(self, reason: str) -> None:
        self._state, self._last = MetadataState(), None
        self._compare_at_s = trio.current_time()
        self.trouble = f"{self._source.dc}: its log is read again: {reason}"

    async def _copy_all(self) -> None:
        # The own fold knows where to continue; without it everything would be copied again.
        await self._own.wait_current()
        start, end = await self._tail.bounds()
        if self._state.position > end:
            raise LogChanged(f"it ends at {end}, {self._state.position} was read already")
        self._settled_below = end
        self.trouble = ""
        await self._tail.follow(max(self._state.position, start), self._copy_batch)

    async def _copy_batch(self, batch: Sequence[StoredRecord]) -> None:
        now_ms = self._clock.now_ms()
        await self._append([copy for each in batch for copy in self._fold(each, now_ms)])
        # Comparing before the whole source is read would miss things.
        is_behind = self._state.position < self._settled_below
        if not is_behind and trio.current_time() >= self._compare_at_s:
            await self._compare()
            self._compare_at_s = trio.current_time() + self._digest_interval_s

    def _fold(self, record: StoredRecord, now_ms: int) -> list[Record]:
        state = self._state
        folded = state.fold(record)
        self._last = record
        if folded.contradicts and record.offset >= self._settled_below:
            raise LogChanged(f"the writer of {record.offset} had read something else")
        register = folded.changed
        if register is None or not folded.is_accepted_here:
            return []
        # A truncated log reuses its offsets for changes that were not copied.
        own = self._own
        reached = own.state.copied.get((state.dc, state.log_id), -1)
        if record.offset <= reached and not register.supersedes(own.register(register.key)):
            return []
        self.copied += 1
        copy = self._copy(register, max(record.offset, reached))
        # A copy has the author of its original.
        return [encode(copy, now_ms, (*record.headers, replaced_header(folded.before)))]

    def _copy(self, register: Register, origin_offset: int) -> Copy:
        state = self._state
        return Copy(
            id=f"{state.log_id}:{origin_offset}",
            key=register.key,
            body=register.body,
            incarnation=register.incarnation,
            stamp=register.stamp,
            dc=register.dc,
            origin_dc=state.dc,
            origin_log=state.log_id,
            origin_offset=origin_offset,
        )

    async def _append(self, records: list[Record]) -> None:
        """Append all in order, however long it takes. A repeated copy has no effect."""
        while records:
            batch = _first_batch(records)
            outcomes = await self._own.log.append(self._own.topic, 0, batch, Ack.ALL)
            stored = 0
            for outcome in outcomes:
                if not isinstance(outcome, Stored):
                    self.trouble = f"{self._own.dc}: {outcome.reason}"
                    break
                stored += 1
            records = records[stored:]
            if stored < len(outcomes):
                await trio.sleep(self._append_backoff.next_s())
            else:
                self._append_backoff.reset()
                self.trouble = ""

    async def _compare(self) -> None:
        """Send again what the own datacentre lacks, or has in an older version."""
        state, own = self._state, self._own
        if (await self._tail.bounds())[1] < state.position or not await self._tail.holds(
            self._last
        ):
            raise LogChanged("it no longer holds what was read last")
        with trio.fail_after(self._answer_timeout_s):
            # Until the own fold includes all copies, every comparison would find differences.
            own_end = (await own.log.positions(own.topic, LATEST))[0]
            while own.state.position < own_end:  # noqa: ASYNC110
                # This happens once a minute; an event for each folded record would cost more.
                await trio.sleep(_POLL_INTERVAL_S)
        if not own.is_current or not state.log_id or state.digest == own.state.digest:
            return
        missing = await lacking_in(own, list(state.registers.values()))
        self.resent += len(missing)
        # Everything that the source accepted up to here has been copied, or is in `missing`.
        reached = own.state.copied.get((state.dc, state.log_id), -1)
        now_ms = self._clock.now_ms()
        await self._append([encode(self._copy(each, reached), now_ms) for each in missing])


def _first_batch(records: list[Record]) -> list[Record]:
    size_bytes = 0
    for count, record in enumerate(records):
        size_bytes += record.size_bytes
        if count and (size_bytes > _BATCH_BYTES_MAX or count == _BATCH_RECORDS_MAX):
            return records[:count]
    return records
