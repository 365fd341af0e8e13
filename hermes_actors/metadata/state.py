"""The fold of the metadata log: after the same records, every node has the same state.

It does not interpret bodies, so nodes of different versions fold alike. It uses no clock,
randomness or name of its own: the state depends only on the records.

Registers. Each key has one register, ordered by (incarnation, stamp, dc). The greatest wins,
wherever and whenever its copies arrive. A stamp is max(log time, last stamp seen + 1), copies
included, so a change is always above everything that its writer's log had seen. A deletion leaves a
tombstone whose incarnation is its own stamp: it is above all concurrent changes to the life that it
ends. A new creation inherits that incarnation, so it, and nothing else, is above the tombstone.
(Last-writer-wins registers with hybrid logical clocks: Kulkarni et al., "Logical Physical Clocks",
2014; the incarnation makes deletion win.)
"""

import hashlib
from collections import OrderedDict

import msgspec
from msgspec import Struct

from hermes_actors.metadata.commands import (
    NOTHING_SEEN,
    Absent,
    Accepted,
    Alive,
    ChangeOutcome,
    Childless,
    Copy,
    Delete,
    LogCreated,
    Precondition,
    Put,
    Rejected,
    Seen,
    StampIs,
    UndecodableCommand,
    decode,
)
from hermes_actors.model.record import StoredRecord
from hermes_actors.model.redaction import hidden_bytes, redacted

COMMAND_IDS_MAX = 16_384
"""How many of the latest command ids are remembered; the count is the same on every node."""

_DIGEST_BYTES = 32


class Register(Struct, frozen=True):
    """The state of one key; `body` None is a tombstone. `dc` is where the change was accepted."""

    key: str
    incarnation: int
    stamp: int
    dc: str
    body: bytes | None

    def __repr__(self) -> str:
        return redacted(self, body=hidden_bytes(self.body))

    @property
    def is_alive(self) -> bool:
        """False for a tombstone."""
        return self.body is not None

    def supersedes(self, other: "Register | None") -> bool:
        """True if this register wins over the other; the result is the same in every datacentre."""
        return other is None or self._order() > other._order()

    def _order(self) -> tuple[int, int, str, bool, bytes]:
        # The body matters only if a lost log's stamps were reused; all nodes agree even then.
        return (self.incarnation, self.stamp, self.dc, self.body is None, self.body or b"")


class Skipped(Struct, frozen=True):
    """A record without effect, because this version does not understand it."""

    offset: int
    reason: str


class Folded(Struct, frozen=True):
    """The effect of one record on the fold.

    `changed` is the register that it set, `before` the one that it replaced. `lost` is a change of
    another datacentre that arrives for the first time and loses against `before`. `outcome` is the
    outcome of command `command_id`, also for a repetition. `is_accepted_here`: the change
    originates in this log, it is no copy. `contradicts`: its writer had folded other records than
    this log now holds.
    """

    changed: Register | None = None
    before: Register | None = None
    lost: Register | None = None
    command_id: str = ""
    outcome: ChangeOutcome | None = None
    is_accepted_here: bool = False
    contradicts: bool = False


_NOTHING = Folded()


class MetadataState:
    """The state after `position` records. Only `fold` changes it."""

    def __init__(self, command_ids_max: int = COMMAND_IDS_MAX) -> None:
        self.position = 0
        self.seen: Seen = NOTHING_SEEN
        self.log_id = ""
        self.dc = ""
        self.last_stamp = 0
        self.registers: dict[str, Register] = {}
        self.copied: dict[tuple[str, str], int] = {}
        self.undecodable = 0
        self.last_undecodable: Skipped | None = None
        self.repeated = 0
        self._command_ids_max = command_ids_max
        self._outcomes: OrderedDict[str, ChangeOutcome] = OrderedDict()
        self._ids_by_offset: OrderedDict[int, str] = OrderedDict()
        self._alive_below: dict[str, int] = {}
        self._digest = 0

    def branch(self) -> "MetadataState":
        """A state with the same registers, to be folded separately."""
        branch = MetadataState()
        branch.position, branch.seen, branch.last_stamp = self.position, self.seen, self.last_stamp
        branch.log_id, branch.dc, branch._digest = self.log_id, self.dc, self._digest
        branch.registers, branch._alive_below = dict(self.registers), dict(self._alive_below)
        return branch

    def fold(self, record: StoredRecord) -> Folded:
        """Apply the next record. Offsets may have gaps, because a log may have internal records."""
        assert record.offset >= self.position, "records are folded once, in order"
        self.position = record.offset + 1
        try:
            command = decode(record.value)
        except UndecodableCommand as error:
            self._remember(record.offset, "")
            return self._skip(record.offset, str(error))
        contradicts = isinstance(command, Put | Delete) and self._contradicts(command.seen)
        self._remember(record.offset, command.id)
        self.seen = Seen(record.offset, command.id)
        if isinstance(command, LogCreated):
            if not self.log_id:
                self.log_id, self.dc = command.id, command.dc
            return Folded(command_id=command.id)
        if not self.log_id:
            return self._skip(record.offset, "it comes before the log's creation")
        if isinstance(command, Copy):
            return self._copy(command)
        return self._change(command, record.timestamp_ms, contradicts)

    def holds(self, precondition: Precondition) -> bool:
        """True if the precondition holds now."""
        if isinstance(precondition, Childless):
            return not self._alive_below.get(precondition.prefix)
        register = self.registers.get(precondition.key)
        alive = register if register is not None and register.is_alive else None
        match precondition:
            case StampIs(_, stamp):
                return alive is not None and alive.stamp == stamp
            case Alive(_, incarnation):
                return alive is not None and alive.incarnation == incarnation
            case Absent():
                return alive is None

    def outcome_of(self, command_id: str) -> ChangeOutcome | None:
        """Return the outcome of a change; None if it is unknown or no longer remembered."""
        return self._outcomes.get(command_id)

    @property
    def digest(self) -> str:
        """A sum of the registers' hashes: equal for equal registers, in any order."""
        return f"{self._digest:0{2 * _DIGEST_BYTES}x}"

    def canonical_bytes(self) -> bytes:
        """All registers, sorted: the same bytes in two datacentres that have converged."""
        return msgspec.msgpack.encode([self.registers[key] for key in sorted(self.registers)])

    def snapshot(self) -> bytes:
        """Everything that later folding depends on: equal if and only if the states are."""
        return msgspec.msgpack.encode(
            (
                (self.position, self.seen, self.log_id, self.dc, self.last_stamp),
                self.canonical_bytes(),
                sorted((*origin, offset) for origin, offset in self.copied.items()),
                (self.undecodable, self.repeated, self.digest),
                list(self._outcomes.items()),
                list(self._ids_by_offset.items()),
                sorted(self._alive_below.items()),
            )
        )

    def _skip(self, offset: int, reason: str) -> Folded:
        self.undecodable += 1
        self.last_undecodable = Skipped(offset, reason)
        return _NOTHING

    def _change(self, command: Put | Delete, log_time_ms: int, contradicts: bool) -> Folded:
        first = self._outcomes.get(command.id)
        if first is not None:
            self.repeated += 1
            return Folded(command_id=command.id, outcome=first, contradicts=contradicts)
        failed = self._first_failed(command)
        changed, before = None, self.registers.get(command.key)
        outcome: ChangeOutcome
        if failed is not None:
            outcome = Rejected(failed)
        else:
            changed = self._accept(command, log_time_ms)
            outcome = Accepted(changed.incarnation, changed.stamp)
        self._outcomes[command.id] = outcome
        if len(self._outcomes) > self._command_ids_max:
            self._outcomes.popitem(last=False)
        return Folded(changed, before, None, command.id, outcome, changed is not None, contradicts)

    def _first_failed(self, command: Put | Delete) -> Precondition | None:
        for precondition in command.preconditions:
            if not self.holds(precondition):
                return precondition
        if isinstance(command, Delete):
            register = self.registers.get(command.key)
            if register is None or not register.is_alive:
                return Alive(command.key, register.incarnation if register is not None else 0)
        return None

    def _accept(self, command: Put | Delete, log_time_ms: int) -> Register:
        stamp = max(log_time_ms, self.last_stamp + 1)
        if isinstance(command, Delete):
            register = Register(command.key, stamp, stamp, self.dc, None)
        else:
            before = self.registers.get(command.key)
            incarnation = before.incarnation if before is not None else 0
            register = Register(command.key, incarnation, stamp, self.dc, command.body)
        self._set(register)
        return register

    def _copy(self, command: Copy) -> Folded:
        origin = (command.origin_dc, command.origin_log)
        reached, before = self.copied.get(origin, -1), self.registers.get(command.key)
        self.copied[origin] = max(command.origin_offset, reached)
        self.last_stamp = max(self.last_stamp, command.stamp)
        register = Register(
            command.key, command.incarnation, command.stamp, command.dc, command.body
        )
        if not register.supersedes(before):
            is_new = command.origin_offset > reached and register != before
            return Folded(None, before, register if is_new else None, command.id)
        self._set(register)
        return Folded(register, before, None, command.id)

    def _set(self, register: Register) -> None:
        before = self.registers.get(register.key)
        self.registers[register.key] = register
        self.last_stamp = max(self.last_stamp, register.stamp)
        was_alive = before is not None and before.is_alive
        if was_alive != register.is_alive:
            self._count_below(register.key, 1 if register.is_alive else -1)
        if before is not None:
            self._digest -= _hash(before)
        self._digest = (self._digest + _hash(register)) % (1 << 8 * _DIGEST_BYTES)

    def _count_below(self, key: str, change: int) -> None:
        at = key.find("/")
        while at >= 0:
            prefix = key[: at + 1]
            count = self._alive_below.get(prefix, 0) + change
            if count:
                self._alive_below[prefix] = count
            else:
                del self._alive_below[prefix]
            at = key.find("/", at + 1)

    def _contradicts(self, seen: Seen) -> bool:
        held = self._ids_by_offset.get(seen.offset)
        if held is not None:
            # A newer writer may have folded a command that this version cannot decode (its id is
            # empty here).
            return held not in ("", seen.id)
        # Records too old to be remembered do not contradict; unknown ones among those remembered
        # do.
        oldest = next(iter(self._ids_by_offset), None)
        return oldest is not None and seen.offset > oldest

    def _remember(self, offset: int, command_id: str) -> None:
        self._ids_by_offset[offset] = command_id
        if len(self._ids_by_offset) > self._command_ids_max:
            self._ids_by_offset.popitem(last=False)


def _hash(register: Register) -> int:
    encoded = msgspec.msgpack.encode(register)
    return int.from_bytes(hashlib.blake2b(encoded, digest_size=_DIGEST_BYTES).digest(), "big")
