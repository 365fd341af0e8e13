"""Reads changes of a datacentre's metadata that are no longer in memory."""

from collections.abc import Sequence

import trio

from hermes_actors.log.base import EARLIEST, LogUnavailable, OffsetOutOfRange, UnknownTopic
from hermes_actors.metadata.state import MetadataState
from hermes_actors.metadata.trail import Entry, Trail
from hermes_actors.metadata.view import CHUNK, Metadata
from hermes_actors.model.record import StoredRecord

_BATCH_RECORDS_MAX = 500
_BATCH_BYTES_MAX = 1_048_576
_ANSWER_TIMEOUT_S = 5.0


class Past:
    """Folds the metadata log again from its beginning, into a second state. `position` is the next
    offset to read.
    """

    def __init__(self, metadata: Metadata) -> None:
        self.position = 0
        self._log, self._topic = metadata.log, metadata.topic
        self._state, self._trail = MetadataState(), Trail()

    async def next(self, end: int) -> list[Entry]:
        """Return the entries of the next batch of records below `end`; other tasks run meanwhile.

        Raises LogUnavailable.
        """
        entries: list[Entry] = []
        for count, record in enumerate(await self._batch(), 1):
            if record.offset >= end:
                self.position = end
                break
            entries += self._trail.note(record, self._state.fold(record))
            self.position = record.offset + 1
            if count % CHUNK == 0:
                await trio.lowlevel.checkpoint()
        return entries

    async def _batch(self) -> Sequence[StoredRecord]:
        try:
            with trio.fail_after(_ANSWER_TIMEOUT_S):
                if not self.position:
                    self.position = (await self._log.positions(self._topic, EARLIEST))[0]
                async with self._log.reader(self._topic, {0: self.position}) as reader:
                    return await reader.next_batch(_BATCH_RECORDS_MAX, _BATCH_BYTES_MAX)
        except (OffsetOutOfRange, UnknownTopic, trio.TooSlowError) as error:
            raise LogUnavailable(f"old changes cannot be read: {error!r}") from error
