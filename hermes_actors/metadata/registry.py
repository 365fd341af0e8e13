"""The actor that reads a datacentre's metadata log and folds it into the node's `Metadata`.

`Metadata` is created once for each node and datacentre, and stays. If the registry is restarted,
the old catalog stays readable meanwhile, and watchers get only real differences.
"""

import logging
from collections.abc import Sequence

import trio

from hermes_actors.actors.supervisor import run_until
from hermes_actors.errors import StartupError
from hermes_actors.log.base import LATEST, LogUnavailable, TopicSettings
from hermes_actors.log.tail import LogChanged, LogTail
from hermes_actors.metadata.commands import (
    TOPIC_RECORD_BYTES_MAX,
    LogCreated,
    encode,
)
from hermes_actors.metadata.pending import OutcomeUnknown
from hermes_actors.metadata.state import MetadataState
from hermes_actors.metadata.trail import Trail
from hermes_actors.metadata.view import (
    CHUNK,
    COMPARED_AT_ONCE,
    Health,
    Metadata,
    lacking_in,
    metadata_topic,
)
from hermes_actors.model.record import StoredRecord
from hermes_actors.model.topic import Ack
from hermes_actors.runtime.backoff import Backoff

__all__ = ["Health", "Metadata", "OutcomeUnknown", "Registry", "metadata_topic"]

_logger = logging.getLogger(__name__)

SETTINGS = TopicSettings(
    partitions=1, retention_ms=None, record_bytes_max=TOPIC_RECORD_BYTES_MAX, log_append_time=True
)
_BATCH_RECORDS_MAX = 1_000
_BATCH_BYTES_MAX = 4_194_304
_RETRY_MAX_S = 0.5
"""Maximum wait before a silent log is asked again, and so the maximum delay in noticing its
return.
"""
_UNHEARD_MAX_S = 10.0
"""How long a start waits for another datacentre's metadata, which may show that the own log lacks
something. A datacentre may be unavailable for days.
"""
_LACKING_MAX_S = 120.0
"""How long a start waits for missing changes: twice a replicator's longest wait."""
_LACKING_POLL_S = 0.1


class Registry:
    """Reads the log into one Metadata. Create a new one for each start.

    A log that shrank, was replaced, or contradicts what other writers saw is folded again, which is
    logged and counted (`Metadata.refolds`).
    """

    def __init__(self, metadata: Metadata, *, answer_timeout_s: float = 5.0) -> None:
        self._metadata = metadata
        self._log = metadata.log
        self._topic = metadata.topic
        self._answer_timeout_s = answer_timeout_s
        self._state, self._trail = MetadataState(), Trail(metadata.entries_max)
        self._last: StoredRecord | None = None
        # Records below this offset were in the log when this reading began; they are read as they
        # are now.
        self._settled_below = 0
        self._must_refold = False
        self._tail = LogTail(
            metadata.log,
            metadata.topic,
            Backoff(metadata.rng, wait_max_s=_RETRY_MAX_S),
            records_max=_BATCH_RECORDS_MAX,
            bytes_max=_BATCH_BYTES_MAX,
            answer_timeout_s=answer_timeout_s,
        )
        self._is_over = trio.CancelScope()
        self._installed = trio.Event()

    async def run(self, stop: trio.Event) -> None:
        """Follow the log until asked to stop. Raises StartupError if it belongs to another
        datacentre.
        """
        try:
            with self._is_over:
                await run_until(stop, self._follow, self._stand_in, self._catch_up)
        finally:
            self._metadata.report("the metadata registry is not running")
        metadata, dc = self._metadata, self._state.dc
        if dc and dc != metadata.dc:
            raise StartupError(
                f"dc: the metadata log that is read as datacentre '{metadata.dc}'s belongs to "
                f"datacentre '{dc}'; give this node the right dc, or the right log (on Kafka: "
                f"kafka.clusters.{metadata.dc})"
            )

    async def _follow(self) -> None:
        await self._tail.run(
            self._read, self._metadata.report, self._begin_again, "the metadata log"
        )

    def _begin_again(self, reason: str) -> None:
        if not self._must_refold:
            self._must_refold = True
            self._metadata.report(f"the metadata log is read again: {reason}")
            if self._state.position:
                _logger.warning("metadata of %s is read again: %s", self._metadata.dc, reason)
                self._metadata.note_refold(reason)

    async def _read(self) -> None:
        """Fold from the state's position on. Never returns."""
        if self._must_refold:
            self._must_refold = False
            self._state, self._last = MetadataState(), None
            self._trail = Trail(self._metadata.entries_max)
        with trio.fail_after(self._answer_timeout_s):
            if await self._log.topics.describe(self._topic) is None:
                await self._create_topic()
        start, end = await self._tail.bounds()
        position = self._state.position
        if position > end or not await self._tail.holds(self._last):
            raise LogChanged(f"it ends at {end}, and {position} records of another one were read")
        self._settled_below = end
        await self._tail.follow(
            max(position, start),
            self._fold,
            end=end,
            caught_up=self._caught_up,
            verifies=True,
            last=self._last,
        )

    async def _create_topic(self) -> None:
        """Create the log topic; several nodes may do so at once. Raises LogUnavailable if the log
        refuses it, for example by a policy.
        """
        try:
            await self._log.topics.create(self._topic, SETTINGS)
        except ValueError as error:
            raise LogUnavailable(f"it refuses topic {self._topic}: {error}") from error

    async def _create_log_id(self, end_before: int) -> int:
        """Append the log's first record, and return the new end. Several nodes may do this at once;
        the first record counts.
        """
        metadata = self._metadata
        command = LogCreated(metadata.ids.message_id(), metadata.dc)
        record = encode(command, metadata.clock.now_ms())
        with trio.fail_after(self._answer_timeout_s):
            await self._log.append(self._topic, 0, [record], Ack.ALL)
            end = (await self._log.positions(self._topic, LATEST))[0]
        if end <= end_before:
            raise LogUnavailable("its first record could not be written")
        return end

    async def _caught_up(self, end: int) -> int:
        state = self._state
        if not state.log_id:
            return await self._create_log_id(end)
        if state is not self._metadata.state:
            # Report this before the state is visible: a lost log is empty, but its topics are not
            # deleted.
            for other in self._metadata.standins:
                self._report_unheard(other)
            await self._metadata.install(state, self._trail)
            self._installed.set()
        self._metadata.report("")
        return end

    async def _fold(self, batch: Sequence[StoredRecord]) -> None:
        for count, record in enumerate(batch, 1):
            folded = self._state.fold(record)
            entries = self._trail.note(record, folded)
            self._last = record
            if self._state is self._metadata.state:
                self._metadata.show(folded, entries)
            if folded.contradicts and record.offset >= self._settled_below:
                raise LogChanged(f"the writer of {record.offset} had read something else")
            if count % CHUNK == 0 or count == len(batch):
                await trio.lowlevel.checkpoint()
        if self._state.dc not in ("", self._metadata.dc):
            self._is_over.cancel()
            await trio.lowlevel.checkpoint()

    async def _stand_in(self) -> None:
        # The own log gets a second first; if it works, it needs far less.
        while True:
            await trio.sleep(1.0)
            if not await self._metadata.stand_in():
                return

    async def _catch_up(self) -> None:
        """Wait for changes that other datacentres hold, again after each reading of the whole
        log.
        """
        while self._metadata.standins:
            await self._installed.wait()
            self._installed = trio.Event()
            async with trio.open_nursery() as nursery:
                for other in self._metadata.standins:
                    nursery.start_soon(self._catch_up_with, other)
                # A datacentre that stays unavailable does not keep the others from being compared
                # again.
                await self._installed.wait()
                nursery.cancel_scope.cancel()

    def _report_unheard(self, other: Metadata) -> None:
        own = self._metadata
        own.report_behind(
            other.dc,
            f"what {other.dc} holds has not been compared with the log of {own.dc} since "
            f"that was read: {other.dc} does not answer yet",
            own.clock.monotonic_s() + _UNHEARD_MAX_S,
        )

    async def _catch_up_with(self, other: Metadata) -> None:
        """Wait until everything that the other datacentre held when it first answered is here."""
        own = self._metadata
        await other.wait_current()
        lacking = await lacking_in(own, list(other.state.registers.values()))
        until_s = own.clock.monotonic_s() + _LACKING_MAX_S
        while lacking:
            own.report_behind(
                other.dc,
                f"{len(lacking)} changes that {other.dc} holds are not in the log of {own.dc} yet",
                until_s,
            )
            await trio.sleep(_LACKING_POLL_S)
            # Compare a part each time: all of them ten times a second would be most of this node's
            # work.
            some, others = lacking[:COMPARED_AT_ONCE], lacking[COMPARED_AT_ONCE:]
            lacking = others + await lacking_in(own, some)
        own.report_behind(other.dc, "", 0.0)
