"""Pending changes: each is appended until it is stored, and answered when it is folded."""

import random
from collections.abc import Callable

import trio

from hermes_actors.errors import ErrorCode, Refused, Unavailable
from hermes_actors.log.base import Log, Stored, UnknownRecord
from hermes_actors.metadata.audit import Author, author_header
from hermes_actors.metadata.commands import (
    RECORD_BYTES_MAX,
    Change,
    ChangeOutcome,
    UndecodableCommand,
    decode,
    encode,
    to_command,
)
from hermes_actors.metadata.state import MetadataState
from hermes_actors.model.record import Headers, Record
from hermes_actors.model.topic import Ack
from hermes_actors.runtime.backoff import Backoff
from hermes_actors.runtime.clock import Clock


class OutcomeUnknown(Unavailable):
    """The change may or may not have been made, or may still be. Repeat it with the same
    `command_id`.
    """

    def __init__(self, message: str, command_id: str) -> None:
        super().__init__(message)
        self.command_id = command_id


class _PendingChange:
    """A change whose outcome is not known yet."""

    def __init__(self) -> None:
        self.is_done = trio.Event()
        self.outcome: ChangeOutcome | None = None
        self.is_perhaps_stored = False
        self.trouble = "its metadata log has not been read yet"


class PendingChanges:
    """The pending changes of this node, at most `pending_max`."""

    def __init__(
        self, log: Log, topic: str, clock: Clock, rng: random.Random, pending_max: int
    ) -> None:
        self._log = log
        self._topic = topic
        self._clock = clock
        self._rng = rng
        self._pending_max = pending_max
        self._pending: dict[str, _PendingChange] = {}

    async def change(
        self,
        change: Change,
        command_id: str,
        author: Author,
        timeout_s: float,
        folded: Callable[[], MetadataState | None],
    ) -> ChangeOutcome:
        """As `Metadata.change`; `folded` returns the state, or None before the first fold."""
        headers = (author_header(author),)
        record_of(change, command_id, MetadataState(), self._clock.now_ms(), headers)
        if command_id in self._pending:
            raise Unavailable(f"a change with the command id {command_id} is under way already")
        if len(self._pending) >= self._pending_max:
            raise Unavailable(
                f"{self._pending_max} changes wait for the metadata log of {self._log.dc}; "
                "nothing was stored, try again later"
            )
        pending = self._pending[command_id] = _PendingChange()
        try:
            with trio.move_on_after(timeout_s):
                await self._carry_out(change, command_id, headers, pending, folded)
        finally:
            del self._pending[command_id]
        if pending.outcome is not None:
            return pending.outcome
        if pending.is_perhaps_stored:
            raise OutcomeUnknown(
                f"the metadata log of {self._log.dc} did not confirm the change of {change.key} "
                f"within {timeout_s:g} s: its outcome is unknown; check, or repeat it",
                command_id,
            )
        raise Unavailable(
            f"the change of {change.key} was not stored within {timeout_s:g} s: {pending.trouble}"
        )

    def complete(self, command_id: str, outcome: ChangeOutcome) -> None:
        """Record the outcome of a command that has been folded."""
        pending = self._pending.get(command_id)
        if pending is not None and pending.outcome is None:
            pending.outcome = outcome
            pending.is_done.set()

    def complete_from(self, state: MetadataState) -> None:
        """Record all outcomes that this newly installed state contains."""
        for command_id in list(self._pending):
            outcome = state.outcome_of(command_id)
            if outcome is not None:
                self.complete(command_id, outcome)

    async def _carry_out(
        self,
        change: Change,
        command_id: str,
        headers: Headers,
        pending: _PendingChange,
        folded: Callable[[], MetadataState | None],
    ) -> None:
        backoff = Backoff(self._rng)
        while not pending.is_done.is_set():
            state = folded()
            if state is not None:
                first = state.outcome_of(command_id)
                if first is not None:
                    self.complete(command_id, first)
                    return
                record = record_of(change, command_id, state, self._clock.now_ms(), headers)
                if await self._append(record, pending):
                    await pending.is_done.wait()
                    return
            with trio.move_on_after(backoff.next_s()):
                await pending.is_done.wait()

    async def _append(self, record: Record, pending: _PendingChange) -> bool:
        """True if the record is stored. A retry is safe, because it has the same command id."""
        was_perhaps_stored, pending.is_perhaps_stored = pending.is_perhaps_stored, True
        (outcome,) = await self._log.append(self._topic, 0, [record], Ack.ALL)
        if isinstance(outcome, Stored):
            return True
        pending.is_perhaps_stored = was_perhaps_stored or isinstance(outcome, UnknownRecord)
        pending.trouble = outcome.reason
        return False


def record_of(
    change: Change, command_id: str, state: MetadataState, now_ms: int, headers: Headers = ()
) -> Record:
    """The record of a change that its writer decided on this state.

    Raises Refused for a change that nobody can decode or no log accepts: to wait for it would be in
    vain.
    """
    record = encode(to_command(change, command_id, state.seen), now_ms, headers)
    try:
        decode(record.value)
    except UndecodableCommand as error:
        raise Refused(f"{change.key[:100]}: not a valid change: {error}") from error
    if record.size_bytes > RECORD_BYTES_MAX:
        raise Refused(
            f"{change.key[:100]}: takes {record.size_bytes} bytes in the metadata log; at most "
            f"{RECORD_BYTES_MAX} are allowed, make it smaller",
            ErrorCode.VALIDATION_ERROR,
        )
    return record
