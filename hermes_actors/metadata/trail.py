"""The newest changes of a datacentre's metadata, with their authors. Pure.

Two datacentres may change the same register before either has the other's change. Each accepts its
own, then the greater one wins everywhere, and the other is overruled. A copy names the version that
it replaced, so following these versions back shows which changes the winner does not contain.
"""

import re
from bisect import bisect_right
from collections import deque
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from hermes_actors.metadata.audit import REPLACED_HEADER, Author, action_of, author_in
from hermes_actors.metadata.keys import ACTIVATION, HOLDER, REDRIVE, SEEK
from hermes_actors.metadata.state import Folded, Register
from hermes_actors.model.record import StoredRecord
from hermes_actors.model.redaction import hidden_bytes, redacted

ENTRIES_MAX = 10_000
BYTES_MAX = 16_777_216
"""The limits of the changes in memory; the bytes are those of their bodies."""

OVERRULED = "overruled"

Place = tuple[int, int]
"""The offset of a record, and the index among its entries."""

BEGINNING: Place = (-1, 0)
LAST_INDEX = 2**31
"""An index after all entries of a record."""

_NUMBER = re.compile("[0-9]{1,19}")

Version = tuple[int, int, str]
"""Incarnation, stamp and datacentre of a register."""

_NOTHING: Version = (0, 0, "")

# Only the broker deletes these: the remains of a subscription that is gone.
_REMAINS = frozenset({REDRIVE, SEEK})


class Entry(Struct, frozen=True):
    """One change. `dc` and `time_ms` say where and when it was made, `replaced` is the version that
    it replaced there; None if unknown.

    An overruled change has `before` as it set the register and `after` as the `winner` set it, and
    `time_ms` when it lost here. The winner may be too old to be known.
    """

    place: Place
    key: str
    action: str
    time_ms: int
    dc: str
    author: Author
    before: bytes | None
    after: bytes | None
    replaced: Version | None
    winner: "Entry | None" = None

    def __repr__(self) -> str:
        return redacted(self, before=hidden_bytes(self.before), after=hidden_bytes(self.after))

    @property
    def size_bytes(self) -> int:
        """The size of its bodies."""
        return len(self.before or b"") + len(self.after or b"")


def replaced_header(before: Register | None) -> tuple[str, bytes]:
    """Return the header of a copy whose original replaced this register."""
    incarnation, stamp, dc = _version(before)
    return REPLACED_HEADER, f"{incarnation} {stamp} {dc}".encode()


class Trail:
    """The entries of the newest records, at most `entries_max` (0: none are kept), oldest first.

    `dropped` is the place of the newest entry that is no longer in memory, `dropped_ms` the latest
    time of all those.
    """

    def __init__(self, entries_max: int = ENTRIES_MAX, bytes_max: int = BYTES_MAX) -> None:
        self.entries: deque[Entry] = deque()
        self.dropped = BEGINNING
        self.dropped_ms = -1
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._bytes = 0
        # Those of index 0, also of changes that lost on arrival, by key and version.
        self._made: dict[tuple[str, Version], Entry] = {}

    @property
    def last(self) -> Place:
        """The place of the newest entry."""
        return self.entries[-1].place if self.entries else self.dropped

    def after(self, place: Place, count_max: int) -> list[Entry]:
        """Return the oldest entries after that place."""
        start = bisect_right(self.entries, place, key=lambda each: each.place)
        return list(islice(self.entries, start, start + count_max))

    def note(self, record: StoredRecord, folded: Folded) -> list[Entry]:
        """Add the entries of one record, and return them. Records come in order."""
        register, before = folded.changed or folded.lost, folded.before
        if register is None or not self._entries_max or _is_internal(register):
            return []
        headers, key, mine = dict(record.headers), register.key, _version(before)
        replaced = mine if folded.is_accepted_here else _replaced(headers)
        former = None if before is None else before.body
        if folded.lost is not None:
            known = self._made.get((key, replaced or _NOTHING))
            former = None if known is None else known.after
        entry = Entry(
            (record.offset, 0),
            key,
            action_of(former, register.body),
            # What was restored or sent again has an old stamp.
            record.timestamp_ms if replaced is None else register.stamp,
            register.dc,
            author_in(headers),
            former,
            register.body,
            replaced,
        )
        self._made[key, _version(register)] = entry
        entries = [entry]
        if folded.lost is None:
            lost = self._lost(key, mine, _version(register))
            for index, each in enumerate(reversed(lost), 1):
                entries.append(_overruled(each, record, index, entry, register))
        elif before is not None and self._lost(key, _version(register), mine):
            entries = [_overruled(entry, record, 0, self._made.get((key, mine)), before)]
        for each in entries:
            self._add(each)
        return entries

    def _lost(self, key: str, mine: Version, winners: Version) -> list[Entry]:
        """The changes that led to `mine` and not to the winner's version, newest first, as far as
        they are known. A change that the winner contains is not lost, even if it arrives later.
        """
        lost: list[Entry] = []
        while mine != winners:
            later = max(mine, winners)
            entry = self._made.get((key, later))
            if entry is not None and later == mine:
                lost.append(entry)
            if entry is None or entry.replaced is None:
                break
            if later == mine:
                mine = entry.replaced
            else:
                winners = entry.replaced
        return lost

    def _add(self, entry: Entry) -> None:
        self.entries.append(entry)
        self._bytes += entry.size_bytes
        while len(self.entries) > self._entries_max or self._bytes > self._bytes_max:
            dropped = self.entries.popleft()
            self._bytes -= dropped.size_bytes
            self.dropped = dropped.place
            self.dropped_ms = max(self.dropped_ms, dropped.time_ms)
            if not dropped.place[1]:
                del self._made[next(iter(self._made))]


def _overruled(
    entry: Entry, record: StoredRecord, index: int, winner: Entry | None, by: Register
) -> Entry:
    return replace(
        entry,
        place=(record.offset, index),
        action=OVERRULED,
        time_ms=record.timestamp_ms,
        before=entry.after,
        after=by.body,
        winner=winner,
    )


def _is_internal(register: Register) -> bool:
    kind = register.key.partition("/")[0]
    return kind in (ACTIVATION, HOLDER) or (kind in _REMAINS and not register.is_alive)


def _version(register: Register | None) -> Version:
    if register is None:
        return _NOTHING
    return register.incarnation, register.stamp, register.dc


def _replaced(headers: dict[str, bytes]) -> Version | None:
    """The version that a copy's header names; None without one."""
    parts = headers.get(REPLACED_HEADER, b"").decode("utf-8", "replace").split(" ", 2)
    if len(parts) != 3 or not all(_NUMBER.fullmatch(each) for each in parts[:2]):
        return None
    return int(parts[0]), int(parts[1]), parts[2]
