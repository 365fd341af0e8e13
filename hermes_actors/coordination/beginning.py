"""Finds the newest snapshot in the coordination log, where a reader begins."""

import trio
from msgspec import Struct

from hermes_actors.coordination.commands import (
    Heartbeat,
    Loads,
    Plan,
    Release,
    Said,
    Snapshot,
    Stopping,
    TermClaim,
    Undecodable,
    decode,
)
from hermes_actors.coordination.state import CoordinationState
from hermes_actors.log.base import Log
from hermes_actors.model.record import StoredRecord

BATCH_RECORDS_MAX = 500
BATCH_BYTES_MAX = 2_097_152
_FIRST_STEP_MS = 45_000
"""More than the interval between snapshots."""
_KEPT_MAX = 4


class Beginning(Struct, frozen=True):
    """A state from which to fold on. `is_whole`: no relevant record is missing; else the log was
    cut, and there may be living members that the state does not know.
    """

    state: CoordinationState
    is_whole: bool


class _Snapshots:
    """Collects snapshots from their records; keeps the newest few."""

    def __init__(self) -> None:
        self._parts: dict[tuple[str, int], dict[int, Snapshot]] = {}

    def note(self, said: Snapshot, offset: int) -> None:
        if said.as_of >= offset:
            # A snapshot of an earlier log, by a leader who had not noticed the change. It would
            # permanently hide this log from every new reader, because nobody could lead and take
            # another one.
            return
        key = (said.boot, said.as_of)
        parts = self._parts.pop(key, {})
        parts[said.part] = said
        self._parts[key] = parts
        while len(self._parts) > _KEPT_MAX:
            del self._parts[next(iter(self._parts))]

    def newest(self, start: int) -> CoordinationState | None:
        """The newest complete snapshot from which a log that begins at `start` can be folded; None
        if there is none.
        """
        for (_, as_of), parts in reversed(self._parts.items()):
            count = next(iter(parts.values())).parts
            if as_of + 1 < start or sorted(parts) != list(range(count)):
                continue
            try:
                state = CoordinationState.restored(
                    b"".join(parts[part].state for part in range(count))
                )
            except Undecodable:
                continue
            if state.position == as_of + 1:
                return state
        return None


async def find_beginning(log: Log, topic: str, start: int, end: int) -> Beginning:
    """Find the newest snapshot between `start` and `end`, searching backwards in growing steps;
    without one, begin at the log's start. Raises the same errors as reading the log.
    """
    last_ms, to, step_ms = 0, end, _FIRST_STEP_MS
    if start < end:
        async with log.reader(topic, {0: end - 1}) as reader:
            last_ms = (await reader.next_batch(1, BATCH_BYTES_MAX))[0].timestamp_ms
    while to > start:
        at = (await log.positions(topic, last_ms - step_ms))[0]
        # Timestamps come from the log and rarely go back. If they do, a later step finds it.
        at = min(max(at, start), to - 1)
        snapshots = await _scan(log, topic, at, to)
        state = snapshots.newest(start)
        if state is not None:
            return Beginning(state, True)
        to, step_ms = at, step_ms * 4
    state = CoordinationState()
    state.position = start
    return Beginning(state, start == 0)


async def _scan(log: Log, topic: str, at: int, to: int) -> _Snapshots:
    found = _Snapshots()
    async with log.reader(topic, {0: at}) as reader:
        while at < to:
            for stored in await reader.next_batch(BATCH_RECORDS_MAX, BATCH_BYTES_MAX):
                at = stored.offset + 1
                if b'"snapshot"' in stored.value[:16]:
                    said = said_by(stored)
                    if isinstance(said, Snapshot) and stored.offset < to:
                        found.note(said, stored.offset)
            await trio.lowlevel.checkpoint()
    return found


def said_by(stored: StoredRecord) -> Said | None:
    """Return the command of a record; None if this version cannot decode it."""
    try:
        return decode(stored.value)
    except Undecodable:
        return None


def is_strange(state: CoordinationState, said: Said | None) -> bool:
    """True if a boot acts as a member but is none: the state may not know all members."""
    return (
        isinstance(said, Heartbeat | Loads | Stopping | TermClaim | Plan | Release)
        and said.boot not in state.members
    )
