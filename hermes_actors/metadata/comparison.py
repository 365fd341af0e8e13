"""Whether a log still holds what was folded from it: it may have shrunk, or been made anew."""

from hermes_actors.log.base import Log, OffsetOutOfRange, UnknownTopic
from hermes_actors.metadata.commands import UndecodableCommand, decode
from hermes_actors.metadata.state import MetadataState

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
