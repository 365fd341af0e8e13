"""The actor that reads a datacentre's metadata log and folds it into the node's `Metadata`.

`Metadata` is made once for each node and datacentre and never goes away; the registry may be
restarted: the old catalog goes on serving meanwhile, and watchers are told true differences only.
"""

import logging
from collections.abc import Sequence

import trio

from hermes_actors.errors import StartupError
from hermes_actors.log.backoff import Backoff
from hermes_actors.log.base import (
    Log,
    LogUnavailable,
    OffsetOutOfRange,
    TopicSettings,
    UnknownTopic,
)
from hermes_actors.log.tail import LogChanged, LogTail
from hermes_actors.metadata.commands import (
    TOPIC_RECORD_BYTES_MAX,
    LogCreated,
    UndecodableCommand,
    decode,
    encode,
)
from hermes_actors.metadata.pending import OutcomeUnknown
from hermes_actors.metadata.state import MetadataState, Register
from hermes_actors.metadata.view import CHUNK, Health, Metadata, metadata_topic
from hermes_actors.model.record import StoredRecord
from hermes_actors.model.topic import Ack

__all__ = ["Health", "Metadata", "OutcomeUnknown", "Registry", "metadata_topic"]

_logger = logging.getLogger(__name__)

SETTINGS = TopicSettings(
    partitions=1, retention_ms=None, record_bytes_max=TOPIC_RECORD_BYTES_MAX, log_append_time=True
)
_BATCH_RECORDS_MAX = 1_000
_BATCH_BYTES_MAX = 4_194_304
_TROUBLE_INTERVAL_S = 0.5
"""How soon a log that did not answer is asked again: so long its return may stay unnoticed."""
_UNHEARD_MAX_S = 10.0
"""So long a start waits for another datacentre's metadata, which may say that the own log lacks
something; a datacentre may be away for days.
"""
_LACKING_MAX_S = 120.0
"""So long a start waits for what is known to be lacking: twice a replicator's longest wait."""
_LACKING_POLL_S = 0.1
_COMPARED_AT_ONCE = 1_000


class Registry:
    """Reads the log into one Metadata. Make a new one for each start.

    Each `verify_interval_s` it checks that the log answers and still holds what was folded last;
    a log that shrank, was made anew, or contradicts what other writers saw is folded again, which
    is logged and counted (`Metadata.refolds`).
    """

    def __init__(
        self, metadata: Metadata, *, verify_interval_s: float = 5.0, answer_timeout_s: float = 5.0
    ) -> None:
        self._metadata = metadata
        self._log = metadata.log
        self._topic = metadata.topic
        self._verify_interval_s = verify_interval_s
        self._answer_timeout_s = answer_timeout_s
        self._state = MetadataState()
        self._is_following = False
        self._must_refold = False
        self._tailing = trio.CancelScope()
        self._tail = LogTail(
            metadata.log,
            metadata.topic,
            Backoff(metadata.rng),
            records_max=_BATCH_RECORDS_MAX,
            bytes_max=_BATCH_BYTES_MAX,
            answer_timeout_s=answer_timeout_s,
        )
        self._fatal: StartupError | None = None
        self._installed = trio.Event()

    async def run(self, stop: trio.Event) -> None:
        """Follow the log until asked to stop. Raises StartupError if it is another DC's log."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._follow, nursery.cancel_scope)
                nursery.start_soon(self._verify)
                nursery.start_soon(self._stand_in)
                nursery.start_soon(self._catch_up)
                await stop.wait()
                nursery.cancel_scope.cancel()
        finally:
            self._metadata.report("fold", "the metadata registry is not running")
            self._metadata.report("log", "")
        if self._fatal is not None:
            raise self._fatal

    def _refold(self, reason: str) -> None:
        self._begin_again(reason)
        self._tailing.cancel()

    def _begin_again(self, reason: str) -> None:
        if not self._must_refold:
            self._must_refold = True
            self._metadata.report("fold", f"the metadata log is read again: {reason}")
            if self._state.position:
                _logger.warning("metadata of %s is read again: %s", self._metadata.dc, reason)
                self._metadata.note_refold(reason)

    async def _follow(self, all_of_it: trio.CancelScope) -> None:
        async def follow() -> None:
            try:
                with trio.CancelScope() as self._tailing:
                    await self._read()
            except UnknownTopic as error:
                raise LogChanged(f"there is no topic {self._topic}") from error
            finally:
                self._is_following = False
            if self._fatal is not None:
                all_of_it.cancel()

        await self._tail.run(
            follow,
            lambda reason: self._metadata.report("fold", reason),
            self._begin_again,
            "the metadata log",
        )

    async def _read(self) -> None:
        """Fold from the state's position on, for ever."""
        if self._must_refold:
            self._must_refold = False
            self._state = MetadataState()
        log, metadata, state = self._log, self._metadata, self._state
        with trio.fail_after(self._answer_timeout_s):
            if await log.describe_topic(self._topic) is None:
                await self._create_topic()
        start, end = await self._tail.bounds()
        if state.position > end:
            raise LogChanged(f"it ends at {end}, {state.position} was read already")
        async with log.reader(self._topic, {0: max(state.position, start)}) as reader:
            while True:
                if max(state.position, start) >= end and not self._is_following:
                    if not state.log_id:
                        end = await self._create_log_id(end)
                    else:
                        await self._start_following(state)
                batch = await reader.next_batch(_BATCH_RECORDS_MAX, _BATCH_BYTES_MAX)
                for at in range(0, len(batch), CHUNK):
                    self._fold(batch[at : at + CHUNK], settled_below=end)
                    await trio.lowlevel.checkpoint()
                if state.dc and state.dc != metadata.dc:
                    self._fatal = StartupError(
                        f"dc: the metadata log that is read as datacentre '{metadata.dc}'s belongs "
                        f"to datacentre '{state.dc}'; give this node the right dc, or the right "
                        f"log (on Kafka: kafka.clusters.{metadata.dc})"
                    )
                    return

    async def _create_topic(self) -> None:
        """Create the log topic; several nodes may do so at once. Raises LogUnavailable if it is
        refused, as a policy of the log's may do to this node.
        """
        try:
            await self._log.create_topic(self._topic, SETTINGS)
        except ValueError as error:
            raise LogUnavailable(f"it refuses topic {self._topic}: {error}") from error

    async def _create_log_id(self, end_before: int) -> int:
        """Append the log's first record and give the new end. Several nodes may do this at once:
        the first record counts.
        """
        metadata = self._metadata
        command = LogCreated(metadata.ids.message_id(), metadata.dc)
        record = encode(command, metadata.clock.now_ms())
        with trio.fail_after(self._answer_timeout_s):
            await self._log.append(self._topic, 0, [record], Ack.ALL)
            end = (await self._log.end_positions(self._topic))[0]
        if end <= end_before:
            raise LogUnavailable("its first record could not be written")
        return end

    async def _start_following(self, state: MetadataState) -> None:
        if state is not self._metadata.state:
            # Before anybody sees it: a log that was lost is empty, and its topics are not deleted.
            for other in self._metadata.standins:
                self._report_unheard(other)
            await self._metadata.install(state)
            self._installed.set()
        self._is_following = True
        self._tail.works()
        self._metadata.report("fold", "")
        self._metadata.report("log", "")

    def _fold(self, records: Sequence[StoredRecord], settled_below: int) -> None:
        for record in records:
            folded = self._state.fold(record)
            if self._state is self._metadata.state:
                self._metadata.show(folded)
            # What was in the log before this reading began has been read as it is now.
            if folded.contradicts and record.offset >= settled_below:
                raise LogChanged(f"the writer of {record.offset} had read something else")

    async def _verify(self) -> None:
        metadata = self._metadata
        has_answered = True
        while True:
            interval_s = self._verify_interval_s
            await trio.sleep(interval_s if has_answered else min(interval_s, _TROUBLE_INTERVAL_S))
            has_answered = True
            if not self._is_following:
                continue
            try:
                with trio.fail_after(self._answer_timeout_s):
                    is_same = await holds_the_same(self._log, self._topic, self._state)
            except trio.TooSlowError:
                has_answered = False
                metadata.report("log", "the metadata log does not answer")
            except LogUnavailable as error:
                has_answered = False
                metadata.report("log", f"the metadata log is unavailable: {error}")
            else:
                metadata.report("log", "")
                if not is_same:
                    self._refold("it no longer holds what was read last")

    async def _stand_in(self) -> None:
        # The own log has a second's start; a healthy one needs far less.
        while True:
            await trio.sleep(1.0)
            if not await self._metadata.stand_in():
                return

    async def _catch_up(self) -> None:
        """Wait for what other datacentres hold, anew after each reading of the whole log."""
        while self._metadata.standins:
            await self._installed.wait()
            self._installed = trio.Event()
            async with trio.open_nursery() as nursery:
                for other in self._metadata.standins:
                    nursery.start_soon(self._catch_up_with, other)
                # One that stays away keeps no other from being compared again.
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
        """Wait until all is here that the other datacentre held when it was first heard of."""
        own = self._metadata
        await other.wait_current()
        lacking = await _lacking(list(other.state.registers.values()), own)
        until_s = own.clock.monotonic_s() + _LACKING_MAX_S
        while lacking:
            own.report_behind(
                other.dc,
                f"{len(lacking)} changes that {other.dc} holds are not in the log of {own.dc} yet",
                until_s,
            )
            await trio.sleep(_LACKING_POLL_S)
            # In turns: all of them ten times a second would be most of what this node does.
            some, others = lacking[:_COMPARED_AT_ONCE], lacking[_COMPARED_AT_ONCE:]
            lacking = others + await _lacking(some, own)
        own.report_behind(other.dc, "", 0.0)


async def _lacking(registers: list[Register], own: Metadata) -> list[Register]:
    """Give those of the registers that the own datacentre has not, or has older; others run
    meanwhile.
    """
    lacking: list[Register] = []
    for count, register in enumerate(registers):
        if register.supersedes(own.register(register.key)):
            lacking.append(register)
        if count % _COMPARED_AT_ONCE == _COMPARED_AT_ONCE - 1:
            await trio.lowlevel.checkpoint()
    return lacking


_BYTES_MAX = 1_048_576


async def holds_the_same(log: Log, topic: str, state: MetadataState) -> bool:
    """False if the log ends below the fold, or holds another command where the last one was.

    Raises LogUnavailable; waits for as long as the log does not answer.
    """
    position, seen = state.position, state.seen
    try:
        if (await log.end_positions(topic))[0] < position:
            return False
        if seen.offset < 0:
            return True
        async with log.reader(topic, {0: seen.offset}) as reader:
            record = (await reader.next_batch(1, _BYTES_MAX))[0]
    except (OffsetOutOfRange, UnknownTopic):
        return False
    try:
        return record.offset == seen.offset and decode(record.value).id == seen.id
    except UndecodableCommand:
        return False
