"""Which dead letters of a range are to be re-driven: those that are open and meant. Pure."""

from msgspec import Struct

from hermes_actors.metadata.redrives import LetterRange
from hermes_actors.model.dead_letter import LetterFilter, Mark, UndecodableLetter, read_entry
from hermes_actors.model.record import StoredRecord

PLAN_MAX = 50_000
"""The most letters that are planned at one time; more are found in passes after it."""


class RedrivePlan(Struct, frozen=True):
    """Offsets of letters, ascending; `next` is where the next pass begins, None after the last."""

    offsets: list[int]
    next: int | None


class Planning:
    """Told of every record from the range's start to the log's end, in order: a letter may be
    closed, or have a successor, far above the range. What is held is bounded by `most` letters.
    """

    def __init__(
        self,
        subscription: str,
        incarnation: int,
        span: LetterRange,
        wanted: LetterFilter,
        most: int = PLAN_MAX,
    ) -> None:
        self._key = subscription.encode()
        self._incarnation = incarnation
        self._end = span.end
        self._is_wanted = wanted.compiled()
        self._most = most
        # Of each letter that is open and meant, by id, the offset of its newest record, and when
        # the message was given up.
        self._open: dict[str, tuple[int, int]] = {}
        self._next: int | None = None

    def take(self, record: StoredRecord) -> None:
        """Take in the next record."""
        if record.key != self._key:
            return
        try:
            entry = read_entry(record)
        except UndecodableLetter:
            return
        if isinstance(entry, Mark):
            for letter_id, up_to_ms in entry.closings():
                held = self._open.get(letter_id)
                if held is not None and held[1] <= up_to_ms:
                    del self._open[letter_id]
            return
        is_known = self._open.pop(entry.id, None) is not None
        is_meant = (
            record.offset < self._end
            and entry.incarnation == self._incarnation
            and self._is_wanted(entry)
        )
        if not is_meant:
            return
        if self._next is None and (is_known or len(self._open) < self._most):
            self._open[entry.id] = record.offset, entry.at_ms
        elif self._next is None:
            self._next = record.offset

    def plan(self, without: frozenset[str] = frozenset()) -> RedrivePlan:
        """Return the plan: the letters that are to be re-driven, but for those in `without`."""
        found = (offset for letter, (offset, _) in self._open.items() if letter not in without)
        return RedrivePlan(sorted(found), self._next)
