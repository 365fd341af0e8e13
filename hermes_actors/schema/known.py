"""The cache of an external registry's schemas, and the queue of requests to it. Pure: the time is
an argument, and nothing here sends a request.

A subject's versions are refreshed after an interval. If the registry does not answer, they stay in
use until they expire. While the registry is unavailable, one request at a time tries it again.
"""

import random
from collections.abc import Callable, Mapping

from msgspec import Struct

from hermes_actors.model.schema import Schema
from hermes_actors.schema.source import SchemaVersion

ASK_INTERVAL_S = 1.0
"""Minimum interval between two requests for one subject, whatever versions publishers name."""

SWEEP_INTERVAL_S = 1.0
IDS_PER_SWEEP = 10
"""Maximum number of unknown ids requested between two sweeps, because a record may contain
any id.
"""

IDS_MAX = 1_000
OUTAGE_PAUSE_FIRST_S = 0.5
OUTAGE_PAUSE_MAX_S = 10.0

_MISSING_ID_S = 60.0
_RETRY_FIRST_S = 1.0
_RETRY_MAX_S = 60.0
_JITTER = 0.1
_AROUND_BYTES = 200
_NONE: Mapping[int, SchemaVersion] = {}

Done = Callable[[], None]

Wanted = str | int
"""A request to the registry: the versions of a subject, or the schema with an id."""


class KnownLimits(Struct, frozen=True):
    """How long an answer is fresh, how long it may be used, and the bounds of the cache."""

    refresh_s: float = 600.0
    expiry_s: float = 86_400.0
    requests_max: int = 8
    subjects_max: int = 20_000
    bytes_max: int = 134_217_728


class Listed(Struct, frozen=True):
    """The registry's answer for a subject: its usable versions, oldest first, and why the newest
    one is not usable (empty string if it is). Without versions, the subject does not exist.
    """

    versions: Mapping[int, SchemaVersion] = {}
    unusable: str = ""

    def size_bytes(self) -> int:
        """Its approximate size in memory."""
        return sum(len(each.schema.text) + _AROUND_BYTES for each in self.versions.values())


class _Subject:
    """One subject. `announced` are the versions that management has registered, with their ids."""

    def __init__(self) -> None:
        self.listed = Listed()
        self.answered_at_s = float("-inf")
        self.asked_at_s = float("-inf")
        self.due_s = float("-inf")
        self.has_answer = False
        self.announced: Mapping[int, int] = {}
        self.reason = ""
        self.failures = 0
        self.waiting: list[Done] = []

    def lacks_announced(self) -> bool:
        return not self.announced.keys() <= self.listed.versions.keys()


class KnownSchemas:
    """The known versions and schemas, and the queue of requests."""

    def __init__(self, limits: KnownLimits, rng: random.Random) -> None:
        self._limits = limits
        self._rng = rng
        self._subjects: dict[str, _Subject] = {}
        self._by_id: dict[int, Schema] = {}
        self._found: dict[int, tuple[Schema | None, float]] = {}
        self._wanted: dict[Wanted, None] = {}
        self._under_way: set[Wanted] = set()
        self._ids_left = IDS_PER_SWEEP
        self._outages = 0
        self._away_until_s = float("-inf")
        self.known_bytes = 0
        self.trouble = ""
        """Why the registry cannot be asked now; empty string while it answers."""

    def __len__(self) -> int:
        return len(self._subjects)

    def oldest_s(self, now_s: float) -> float:
        """The age of the oldest answer in use."""
        used = [each.answered_at_s for each in self._subjects.values() if each.has_answer]
        return now_s - min(used, default=now_s)

    def versions_of(
        self, subject: str, announced: Mapping[int, int]
    ) -> Mapping[int, SchemaVersion]:
        """The known versions of a subject, oldest first. A subject that is unknown, or whose
        announced versions have changed, is queued.
        """
        known = self._entry(subject)
        if known is None:
            return _NONE
        if known.announced != announced:
            known.announced = dict(announced)
            known.asked_at_s = float("-inf")
            self._wanted[subject] = None
        return known.listed.versions if known.has_answer else _NONE

    def held(self, subject: str) -> Mapping[int, SchemaVersion]:
        """The versions of the last answer, even if it has expired."""
        known = self._subjects.get(subject)
        return _NONE if known is None else known.listed.versions

    def lack(self, subject: str) -> str:
        """Why versions that the subject has, or must have, cannot be used; otherwise empty."""
        known = self._subjects.get(subject)
        if known is None:
            return f"more than {self._limits.subjects_max} subjects are in use"
        if not known.has_answer:
            reason = known.reason or self.trouble or "the registry has not answered yet"
            return reason if known.announced or known.listed.versions else ""
        if known.listed.versions:
            return ""
        no_versions = "the registry has no versions of it" if known.announced else ""
        return known.listed.unusable or no_versions

    def doubt(self, subject: str, version: int) -> str:
        """Why an unknown version of a subject (0: any) may exist nevertheless; otherwise empty."""
        known = self._subjects.get(subject)
        if self.trouble or known is None:
            return self.trouble
        if known.reason or version not in known.announced:
            return known.reason
        return "it was saved, and the registry does not show it"

    def by_id(self, schema_id: int, now_s: float) -> Schema | None:
        """The schema with this id, if known; else it is queued."""
        if schema_id in self._by_id:
            return self._by_id[schema_id]
        schema, good_until_s = self._found.get(schema_id, (None, float("-inf")))
        is_asked = now_s < good_until_s or schema_id in self._wanted or schema_id in self._under_way
        if not is_asked and self._ids_left and 0 < schema_id < 2**31:
            self._ids_left -= 1
            self._wanted[schema_id] = None
        return schema

    def is_missing(self, schema_id: int) -> bool:
        """True if the registry has answered that it has no such schema."""
        return schema_id in self._found and self._found[schema_id][0] is None

    def ask(self, subject: str, done: Done, now_s: float) -> bool:
        """Queue a subject, and call `done` after the answer. False if it is not queued: it was
        asked for just now, or the registry is unavailable.
        """
        known = self._entry(subject)
        if known is None or self.trouble:
            return False
        if subject not in self._wanted and subject not in self._under_way:
            was_asked = now_s < known.asked_at_s + ASK_INTERVAL_S
            if was_asked or (known.failures and now_s < known.due_s):
                return False
            self._wanted[subject] = None
        known.waiting.append(done)
        return True

    def next(self, now_s: float) -> Wanted | None:
        """Return the next request to send, and count it as under way; None if there is none."""
        requests_max = 1 if self.trouble else self._limits.requests_max
        if len(self._under_way) >= requests_max or now_s < self._away_until_s:
            return None
        for wanted in self._wanted:
            if wanted not in self._under_way:
                del self._wanted[wanted]
                self._under_way.add(wanted)
                if isinstance(wanted, str):
                    self._subjects[wanted].asked_at_s = now_s
                return wanted
        return None

    def listed(self, subject: str, answer: Listed, now_s: float) -> tuple[bool, list[Done]]:
        """Record the answer for a subject. Returns whether it changed anything, and the waiting
        callbacks.
        """
        self._under_way.discard(subject)
        self._is_back()
        known = self._subjects[subject]
        grown_bytes = answer.size_bytes() - known.listed.size_bytes()
        if self.known_bytes + grown_bytes > self._limits.bytes_max:
            known.reason = f"more than {self._limits.bytes_max} bytes of schemas are in use"
            self._retry(known, now_s)
            return False, _taken(known)
        is_news = not known.has_answer or known.listed != answer
        self._hold(known, answer)
        known.has_answer, known.answered_at_s, known.reason = True, now_s, ""
        if known.lacks_announced():
            # A registry with several nodes may show a new version late.
            self._retry(known, now_s)
        else:
            known.failures = 0
            known.due_s = now_s + self._limits.refresh_s * self._jitter()
        return is_news, _taken(known)

    def found(self, schema_id: int, schema: Schema | None, now_s: float) -> None:
        """Record the answer for an id; None: there is no such schema."""
        self._under_way.discard(schema_id)
        self._is_back()
        good_until_s = float("inf") if schema else now_s + _MISSING_ID_S
        self._found.pop(schema_id, None)
        self._found[schema_id] = (schema, good_until_s)
        if len(self._found) > IDS_MAX:
            del self._found[next(iter(self._found))]

    def failed(self, wanted: Wanted, reason: str, now_s: float, *, is_away: bool) -> list[Done]:
        """Record that there was no usable answer. Returns the waiting callbacks. `is_away`: no
        request would have been answered.
        """
        self._under_way.discard(wanted)
        told: list[Done] = []
        if is_away:
            pause_s = min(OUTAGE_PAUSE_MAX_S, OUTAGE_PAUSE_FIRST_S * 2 ** min(self._outages, 10))
            self._outages += 1
            self._away_until_s = now_s + pause_s * self._jitter()
            self.trouble = reason
            # This one is asked again after the pause; the callers of the others do not wait that
            # long.
            self._wanted[wanted] = None
            for each in self._wanted:
                told += _taken(self._subjects[each]) if isinstance(each, str) else []
        else:
            self._is_back()
        if isinstance(wanted, str):
            known = self._subjects[wanted]
            known.reason = reason
            self._retry(known, now_s)
            told += _taken(known)
        return told

    def sweep(self, is_used: Callable[[str], bool], now_s: float) -> list[str]:
        """Queue subjects that are due, and drop unused ones. Returns the subjects whose answers
        have expired.
        """
        self._ids_left = IDS_PER_SWEEP
        expired = []
        for subject, known in list(self._subjects.items()):
            if subject in self._wanted or subject in self._under_way:
                pass
            elif not is_used(subject) and now_s >= known.asked_at_s + self._limits.refresh_s:
                self._hold(known, Listed())
                del self._subjects[subject]
                continue
            elif now_s >= known.due_s:
                self._wanted[subject] = None
            if known.has_answer and now_s >= known.answered_at_s + self._limits.expiry_s:
                known.has_answer = False
                expired.append(subject)
        return expired

    def _entry(self, subject: str) -> _Subject | None:
        known = self._subjects.get(subject)
        if known is None and len(self._subjects) < self._limits.subjects_max:
            known = self._subjects[subject] = _Subject()
            self._wanted[subject] = None
        return known

    def _retry(self, known: _Subject, now_s: float) -> None:
        pause_s = min(_RETRY_MAX_S, _RETRY_FIRST_S * 2 ** min(known.failures, 10))
        known.failures += 1
        known.due_s = now_s + pause_s * self._jitter()

    def _jitter(self) -> float:
        return self._rng.uniform(1 - _JITTER, 1 + _JITTER)

    def _is_back(self) -> None:
        self.trouble, self._outages, self._away_until_s = "", 0, float("-inf")

    def _hold(self, known: _Subject, answer: Listed) -> None:
        self.known_bytes += answer.size_bytes() - known.listed.size_bytes()
        for each in known.listed.versions.values():
            # Another subject may use it too; then it is requested by id.
            self._by_id.pop(each.id, None)
        self._by_id.update((each.id, each.schema) for each in answer.versions.values())
        known.listed = answer


def _taken(known: _Subject) -> list[Done]:
    waiting, known.waiting = known.waiting, []
    return waiting
