"""The cache of an external registry's schemas, which also decides what is asked next. Pure: the
time is an argument, and nothing here sends a request.

A subject's versions are known from an answer on, asked for again after the refresh interval, and
forgotten when no answer came for the expiry. While the registry is away only one request in a while
tries whether it is back.
"""

import heapq
import random
from collections.abc import Callable, Iterable, Mapping
from itertools import count

from msgspec import Struct

from hermes_actors.model.schema import Schema
from hermes_actors.schema.source import SchemaVersion

ASK_INTERVAL_S = 1.0
"""A subject is not asked about more often, whoever names versions that are not there."""

OUTAGE_PAUSE_FIRST_S = 0.5
OUTAGE_PAUSE_MAX_S = 10.0

WAITING_MAX = 10_000
"""Those who wait for one subject; more are told at once that it is not known."""

IDS_MAX = 1_000
"""Schemas that are known by their ids alone, and ids that there are no schemas of."""

ID_REQUESTS_PER_S = 10.0
_IDS_WANTED_MAX = 100
_MISSING_ID_S = 60.0
_RETRY_FIRST_S = 1.0
_RETRY_MAX_S = 60.0
_JITTER = 0.1
_AROUND_BYTES = 200
_NOBODY: Mapping[int, int] = {}
_NONE: Mapping[int, SchemaVersion] = {}

Done = Callable[[], None]


class KnownLimits(Struct, frozen=True):
    """How long an answer is fresh, and how long it is good at most; the most requests at a time;
    and the most that is kept, in subjects and in bytes.
    """

    refresh_s: float = 600.0
    expiry_s: float = 86_400.0
    requests_max: int = 8
    subjects_max: int = 20_000
    bytes_max: int = 134_217_728


class Lookup(Struct, frozen=True):
    """A question for the registry: the versions of a subject, or (`subject` "") one schema."""

    subject: str
    schema_id: int = 0


class Listed(Struct, frozen=True):
    """A registry's answer on a subject: its versions that can be used here, oldest first, and why
    its newest one cannot, "" when it can. Without versions: there is no such subject.
    """

    versions: Mapping[int, SchemaVersion] = {}
    unusable: str = ""

    def size_bytes(self) -> int:
        """About as much as it takes."""
        return sum(len(each.schema.text) + _AROUND_BYTES for each in self.versions.values())


class _Subject:
    """The versions known of one subject, and its look-ups. `announced` are the versions that it
    must have, with their ids.
    """

    __slots__ = (
        *("announced", "answered_at_s", "asked_at_s", "due_s", "failures", "is_asked"),
        *("is_stale", "lacked", "listed", "reason", "waiting"),
    )

    def __init__(self) -> None:
        self.listed: Listed | None = None
        self.answered_at_s = 0.0
        self.asked_at_s = float("-inf")
        self.due_s = float("-inf")
        self.announced: Mapping[int, int] = _NOBODY
        self.reason = ""
        self.failures = 0
        self.lacked = 0
        self.is_asked = False
        self.is_stale = False
        self.waiting: list[Done] = []


class KnownSchemas:
    """The versions and schemas that are known now, and the subjects to be asked next."""

    def __init__(self, limits: KnownLimits, rng: random.Random) -> None:
        self._limits = limits
        self._rng = rng
        self._subjects: dict[str, _Subject] = {}
        self._due: list[tuple[float, int, str]] = []
        self._turn = count()
        self._holders: dict[int, dict[str, Schema]] = {}
        self._by_id: dict[int, Schema | None] = {}
        self._missing_until_s: dict[int, float] = {}
        self._wanted_ids: dict[int, None] = {}
        self._asked_ids: set[int] = set()
        self._id_budget = ID_REQUESTS_PER_S
        self._id_budget_at_s = 0.0
        self._under_way = 0
        self._outages = 0
        self._away_until_s = float("-inf")
        self.known_bytes = 0
        self.trouble = ""
        """Why the registry cannot be asked now; "" while it answers."""

    def __len__(self) -> int:
        return len(self._subjects)

    @property
    def under_way(self) -> int:
        """The requests that are not answered yet."""
        return self._under_way

    def oldest_s(self, now_s: float) -> float:
        """How old the oldest answer is that is still believed."""
        answered = [each.answered_at_s for each in self._subjects.values() if each.listed]
        return now_s - min(answered, default=now_s)

    def versions_of(
        self, subject: str, announced: Mapping[int, int], now_s: float
    ) -> Mapping[int, SchemaVersion]:
        """The subject's versions that are known, oldest first. One that is not known is asked for
        from now on, and one of which other versions are announced than before is asked for anew.
        """
        known = self._entry(subject, now_s)
        if known is None:
            return _NONE
        if known.announced != announced:
            known.announced = dict(announced)
            known.lacked = 0
            # What is under way may have been answered before the change.
            known.is_stale = known.is_asked
            if known.listed is None or not self._has_announced(known):
                known.asked_at_s = float("-inf")
            self._plan(subject, known, now_s)
        return self._believed(known, now_s)

    def held(self, subject: str) -> Mapping[int, SchemaVersion]:
        """The versions of the last answer, however old it is."""
        known = self._subjects.get(subject)
        return _NONE if known is None or known.listed is None else known.listed.versions

    def lack(self, subject: str, now_s: float) -> str:
        """Why versions that the subject has cannot be used, or why it is not known whether a
        subject has any that must have; "" when `versions_of` tells all, or nothing speaks for more.
        """
        known = self._subjects.get(subject)
        if known is None:
            return f"more than {self._limits.subjects_max} subjects are in use"
        if self._believed(known, now_s):
            return ""
        reason = known.reason or self.trouble or "the registry has not answered yet"
        if known.listed is None:
            return reason if known.announced else ""
        if now_s - known.answered_at_s >= self._limits.expiry_s:
            return reason if known.listed.versions or known.announced else ""
        if known.listed.unusable:
            return known.listed.unusable
        return "the registry has no versions of it" if known.announced else ""

    def doubt(self, subject: str, version: int) -> str:
        """Why a version of a subject (0: any) that is not known may be there all the same: there
        was no usable answer, or it is announced; else "".
        """
        known = self._subjects.get(subject)
        if self.trouble or known is None:
            return self.trouble
        if known.reason or version not in known.announced:
            return known.reason
        return "it was saved, and the registry does not show it"

    def by_id(self, schema_id: int, now_s: float) -> Schema | None:
        """The schema with this id. One that is not known is asked for, some a second at most; one
        that two subjects have with different texts is nobody's.
        """
        held = self._holders.get(schema_id)
        if held is not None:
            first = next(iter(held.values()))
            return first if all(each == first for each in held.values()) else None
        if schema_id in self._by_id:
            known = self._by_id[schema_id] = self._by_id.pop(schema_id)
            if known is not None or now_s < self._missing_until_s[schema_id]:
                return known
        is_asked = schema_id in self._asked_ids or not 0 < schema_id < 2**31
        if not is_asked and len(self._wanted_ids) < _IDS_WANTED_MAX:
            self._wanted_ids[schema_id] = None
        return None

    def is_missing(self, schema_id: int) -> bool:
        """True when the registry has said that it has no such schema."""
        return schema_id in self._missing_until_s

    def ask(self, subject: str, done: Done, now_s: float) -> bool:
        """Have a subject asked about, and `done` called then. False when it is not to be asked now:
        it was just now, or the registry is away: whether it is back is found out without anybody
        waiting for that.
        """
        known = self._entry(subject, now_s)
        if known is None or self.trouble or len(known.waiting) >= WAITING_MAX:
            return False
        if not known.is_asked:
            if now_s < known.asked_at_s + ASK_INTERVAL_S:
                return False
            if known.failures and now_s < known.due_s:
                return False
            self._plan(subject, known, now_s)
        known.waiting.append(done)
        return True

    def next(self, now_s: float) -> Lookup | None:
        """The next question to send, which is then under way; None when none is due."""
        if self._under_way >= self._limits.requests_max or now_s < self._away_until_s:
            return None
        if self.trouble and self._under_way:
            # One finds out for all whether it is back.
            return None
        if self._wanted_ids and self._may_ask_id(now_s):
            schema_id = next(iter(self._wanted_ids))
            del self._wanted_ids[schema_id]
            self._asked_ids.add(schema_id)
            self._under_way += 1
            return Lookup("", schema_id)
        while self._due and self._due[0][0] <= now_s:
            due_s, _, subject = heapq.heappop(self._due)
            known = self._subjects.get(subject)
            if known is None or known.is_asked or known.due_s != due_s:
                continue
            known.is_asked, known.asked_at_s = True, now_s
            self._under_way += 1
            return Lookup(subject)
        return None

    def due_s(self) -> float:
        """When `next` may have one, if nothing else happens."""
        if self._under_way >= self._limits.requests_max or (self.trouble and self._under_way):
            return float("inf")
        first_s = self._due[0][0] if self._due else float("inf")
        if self._wanted_ids:
            wait_s = max(0.0, 1.0 - self._id_budget) / ID_REQUESTS_PER_S
            first_s = min(first_s, self._id_budget_at_s + wait_s)
        return max(first_s, self._away_until_s)

    def listed(self, subject: str, answer: Listed, now_s: float) -> tuple[bool, list[Done]]:
        """Take in an answer on a subject; whether it says something new, and who waits for it."""
        known = self._answered(subject)
        self._is_back()
        if known is None:
            return False, []
        before = known.listed
        grown_bytes = answer.size_bytes() - (before.size_bytes() if before else 0)
        if self.known_bytes + grown_bytes > self._limits.bytes_max:
            known.reason = f"more than {self._limits.bytes_max} bytes of schemas are in use"
            self._retry(subject, known, now_s)
            return False, _taken(known)
        is_expired = now_s - known.answered_at_s >= self._limits.expiry_s
        self._hold(subject, before, answer)
        self.known_bytes += grown_bytes
        known.listed, known.answered_at_s, known.failures, known.reason = answer, now_s, 0, ""
        pause_s = self._limits.refresh_s * self._rng.uniform(1 - _JITTER, 1 + _JITTER)
        if known.is_stale:
            pause_s = 0.0
        elif not self._has_announced(known):
            # A registry of several nodes may show a new version late.
            pause_s = min(pause_s, _RETRY_FIRST_S * 2 ** min(known.lacked, 10))
            known.lacked += 1
        known.is_stale = False
        self._plan(subject, known, now_s + pause_s)
        return before != answer or is_expired, _taken(known)

    def failed(self, lookup: Lookup, reason: str, now_s: float, *, is_away: bool) -> list[Done]:
        """Take in that there was no usable answer; who waits for it. `is_away`: no other question
        would have been answered either.
        """
        if is_away:
            pause_s = min(OUTAGE_PAUSE_MAX_S, OUTAGE_PAUSE_FIRST_S * 2 ** min(self._outages, 10))
            self._outages += 1
            self._away_until_s = now_s + pause_s * self._rng.uniform(1 - _JITTER, 1 + _JITTER)
            self.trouble = reason
        else:
            self._is_back()
        if not lookup.subject:
            self._under_way -= 1
            self._asked_ids.discard(lookup.schema_id)
            if is_away:
                self._wanted_ids[lookup.schema_id] = None
            return []
        known = self._answered(lookup.subject)
        if known is None:
            return []
        known.reason, known.is_stale = reason, False
        if is_away:
            # Whichever is due: the pause is the registry's.
            self._plan(lookup.subject, known, now_s)
        else:
            self._retry(lookup.subject, known, now_s)
        return _taken(known)

    def found(self, schema_id: int, schema: Schema | None, now_s: float) -> None:
        """Take in an answer on an id; None: there is no such schema."""
        self._under_way -= 1
        self._asked_ids.discard(schema_id)
        self._is_back()
        self._by_id.pop(schema_id, None)
        self._missing_until_s.pop(schema_id, None)
        self._by_id[schema_id] = schema
        if schema is None:
            self._missing_until_s[schema_id] = now_s + _MISSING_ID_S
        while len(self._by_id) > IDS_MAX:
            oldest = next(iter(self._by_id))
            del self._by_id[oldest]
            self._missing_until_s.pop(oldest, None)

    def sweep(self, is_used: Callable[[str], bool], now_s: float) -> list[str]:
        """Drop the subjects that nobody uses any more; return those whose answers have expired."""
        expired = []
        for subject, known in list(self._subjects.items()):
            if known.is_asked or known.waiting:
                continue
            if not is_used(subject) and now_s >= known.asked_at_s + self._limits.refresh_s:
                self._hold(subject, known.listed, None)
                self.known_bytes -= known.listed.size_bytes() if known.listed else 0
                del self._subjects[subject]
            elif known.listed and now_s - known.answered_at_s >= self._limits.expiry_s:
                expired.append(subject)
        return expired

    def _entry(self, subject: str, now_s: float) -> _Subject | None:
        known = self._subjects.get(subject)
        if known is None and len(self._subjects) < self._limits.subjects_max:
            known = self._subjects[subject] = _Subject()
            self._plan(subject, known, now_s)
        return known

    def _plan(self, subject: str, known: _Subject, due_s: float) -> None:
        known.due_s = due_s
        heapq.heappush(self._due, (due_s, next(self._turn), subject))
        if len(self._due) > 4 * len(self._subjects) + 100:
            # Plans that were changed, before their time.
            self._due = [each for each in self._due if self._is_planned(each)]
            heapq.heapify(self._due)

    def _is_planned(self, plan: tuple[float, int, str]) -> bool:
        known = self._subjects.get(plan[2])
        return known is not None and known.due_s == plan[0]

    def _retry(self, subject: str, known: _Subject, now_s: float) -> None:
        pause_s = min(_RETRY_MAX_S, _RETRY_FIRST_S * 2 ** min(known.failures, 10))
        known.failures += 1
        self._plan(subject, known, now_s + pause_s * self._rng.uniform(1 - _JITTER, 1 + _JITTER))

    def _answered(self, subject: str) -> _Subject | None:
        self._under_way -= 1
        known = self._subjects.get(subject)
        if known is not None:
            known.is_asked = False
        return known

    def _is_back(self) -> None:
        self.trouble, self._outages, self._away_until_s = "", 0, float("-inf")

    def _believed(self, known: _Subject, now_s: float) -> Mapping[int, SchemaVersion]:
        if known.listed is None or now_s - known.answered_at_s >= self._limits.expiry_s:
            return _NONE
        return known.listed.versions

    @staticmethod
    def _has_announced(known: _Subject) -> bool:
        have = {} if known.listed is None else known.listed.versions
        return all(number in have for number in known.announced)

    def _may_ask_id(self, now_s: float) -> bool:
        spent_s = max(0.0, now_s - self._id_budget_at_s)
        self._id_budget = min(ID_REQUESTS_PER_S, self._id_budget + spent_s * ID_REQUESTS_PER_S)
        self._id_budget_at_s = now_s
        if self._id_budget < 1:
            return False
        self._id_budget -= 1
        return True

    def _hold(self, subject: str, before: Listed | None, now: Listed | None) -> None:
        for each in _versions(before):
            held = self._holders.get(each.id)
            if held is not None and held.pop(subject, None) is not None and not held:
                del self._holders[each.id]
        for each in _versions(now):
            self._holders.setdefault(each.id, {})[subject] = each.schema


def _versions(listed: Listed | None) -> Iterable[SchemaVersion]:
    return () if listed is None else listed.versions.values()


def _taken(known: _Subject) -> list[Done]:
    waiting, known.waiting = known.waiting, []
    return waiting
