"""The records of dead letters: a message that was given up, as it was in its log, with the reason
and history; and the marks that close letters.

The record's key is the subscription's full name, so all its letters are in one partition, in order.
Its value and first headers are the original's; ours follow, from `dlq-id` on. Of all records with
one letter's id the last one decides. A letter opens it (a failed re-drive writes a newer one). A
mark closes it, unless the message was given up again after the event that the mark records. So a
letter that was stored twice counts once.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum
from itertools import repeat
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from hermes_actors.model.record import Record, StoredRecord

DLQ_TOPIC = "_hermes.dlq"

DETAIL_BYTES_MAX = 300
"""Maximum length of a letter's detail in bytes; longer ones are cut."""

MARK_IDS_MAX = 200
"""Maximum number of letters that one mark closes."""

MISSED_BYTES_MAX = 8_192
"""Maximum size of the list of recipients that missed a message. A longer list is not kept, and a
re-drive goes to all.
"""

_ID = "dlq-id"
_MARK = "dlq-mark"
_EVER_MS = float("inf")


class UndecodableLetter(Exception):
    """The record is neither a letter nor a mark, as far as this version knows."""


class DiscardReason(StrEnum):
    """Why a message was given up."""

    CLIENT_ERROR = "client-error"
    DISCARD_STATUS = "discard-status"
    EXPIRED = "expired"
    ATTEMPTS = "attempts"
    UNDECODABLE = "undecodable"
    TOO_LARGE = "too-large"
    FILTER_TIME = "filter-time"


class MarkKind(StrEnum):
    """Why letters were closed."""

    REDRIVEN = "redriven"
    EXPIRED = "expired"


class Letter(Struct, frozen=True, gc=False):
    """One dead letter. The fields about the message are the original's: place, log timestamp, key,
    headers and value.

    `incarnation` is the subscription's. `attempts` were made since the message was last read or
    re-driven; `status` is that of the last answer, 0 if there was none. `redrives` is how often it
    was given up again after a re-drive. If `missing_bytes` is above 0, the value had this size and
    was too large to keep: it is only in the topic's log, as long as that keeps it.
    """

    dc: str
    subscription: str
    incarnation: int
    log_topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, bytes], ...]
    message_id: str
    reason: str
    detail: str
    attempts: int
    status: int
    at_ms: int
    redrives: int = 0
    missing_bytes: int = 0
    is_tombstone: bool = False
    missed: tuple[str, ...] = ()
    """The recipients that have not accepted a broadcast message, without queries; empty for a
    single recipient, or if there are too many to keep.
    """

    @property
    def id(self) -> str:
        """The letter's id, the same for every letter about this message and this incarnation of the
        subscription.
        """
        return f"{self.dc}:{self.incarnation}:{self.partition}:{self.offset}"

    @property
    def original(self) -> StoredRecord:
        """The message's record, as it was read."""
        return StoredRecord(
            self.partition,
            self.offset,
            self.timestamp_ms,
            self.key,
            self.value,
            self.headers,
            f"{self.dc}:{self.log_topic}",
            self.is_tombstone,
        )


class Mark(Struct, frozen=True, gc=False):
    """Closes the letters with these ids that come before it.

    `up_to_ms`, if not empty, has for each id the time of the last failure that it closes: a message
    may be delivered, and be given up again before its mark is stored.
    """

    kind: MarkKind
    ids: tuple[str, ...]
    at_ms: int
    up_to_ms: tuple[int, ...] = ()

    def closings(self) -> Iterable[tuple[str, float]]:
        """Each id with the time up to which its failures are closed."""
        return zip(self.ids, self.up_to_ms or repeat(_EVER_MS), strict=False)


class _MarkBody(Struct, frozen=True, omit_defaults=True):
    ids: Annotated[tuple[str, ...], Meta(max_length=10 * MARK_IDS_MAX)]
    at_ms: int
    up_to_ms: tuple[int, ...] = ()


class LetterFilter(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Selects letters; fields that are not set or empty select all. Times are when the letter was
    given up, from `since_ms` (included) to `until_ms` (excluded).
    """

    ids: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    statuses: tuple[int, ...] = ()
    message_id: str = ""
    since_ms: int | None = None
    until_ms: int | None = None

    def compiled(self) -> Callable[[Letter], bool]:
        """Return a predicate that is fast for many letters."""
        ids = frozenset(self.ids)

        def matches(letter: Letter) -> bool:
            return (
                (not ids or letter.id in ids)
                and (not self.reasons or letter.reason in self.reasons)
                and (not self.statuses or letter.status in self.statuses)
                and (not self.message_id or letter.message_id == self.message_id)
                and (self.since_ms is None or letter.at_ms >= self.since_ms)
                and (self.until_ms is None or letter.at_ms < self.until_ms)
            )

        return matches


class OpenLetters:
    """Finds the open letters while reading from the newest record to the oldest. It remembers all
    ids that it has seen; the caller bounds that.
    """

    def __init__(self) -> None:
        # For each id, the time up to which newer records have decided.
        self._decided: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._decided)

    def take(self, entry: Letter | Mark) -> bool:
        """Take the next older entry. True if it is an open letter."""
        decided = self._decided
        if isinstance(entry, Mark):
            for letter_id, up_to_ms in entry.closings():
                decided[letter_id] = max(up_to_ms, decided.get(letter_id, up_to_ms))
            return False
        letter_id = entry.id
        is_open = letter_id not in decided or decided[letter_id] < entry.at_ms
        decided[letter_id] = _EVER_MS
        return is_open


def dlq_topic(group: str, namespace: str = "") -> str:
    """The log topic for the dead letters of a group's subscriptions."""
    name = f"{DLQ_TOPIC}.{group}"
    return f"{namespace}_{name}" if namespace else name


_OWN = (
    ("dlq-subscription", "subscription"),
    ("dlq-incarnation", "incarnation"),
    ("dlq-dc", "dc"),
    ("dlq-log-topic", "log_topic"),
    ("dlq-partition", "partition"),
    ("dlq-offset", "offset"),
    ("dlq-timestamp", "timestamp_ms"),
    ("dlq-message-id", "message_id"),
    ("dlq-reason", "reason"),
    ("dlq-detail", "detail"),
    ("dlq-attempts", "attempts"),
    ("dlq-status", "status"),
    ("dlq-at", "at_ms"),
    ("dlq-redrives", "redrives"),
    ("dlq-missing-bytes", "missing_bytes"),
)
"""The headers with a letter's fields as text. `dlq-key`, `dlq-tombstone` and `dlq-missed` are
written separately.
"""


def letter_record(letter: Letter) -> Record:
    """Encode this letter as a record."""
    ours = [(_ID, letter.id.encode())]
    for header, field in _OWN:
        value = getattr(letter, field)
        text = clipped(value) if field == "detail" else str(value)
        ours.append((header, text.encode("utf-8", "replace")))
    if letter.key is not None:
        ours.append(("dlq-key", letter.key))
    if letter.is_tombstone:
        ours.append(("dlq-tombstone", b"true"))
    missed = msgspec.json.encode(letter.missed)
    if letter.missed and len(missed) <= MISSED_BYTES_MAX:
        ours.append(("dlq-missed", missed))
    return Record(
        key=letter.subscription.encode(),
        value=letter.value,
        headers=letter.headers + tuple(ours),
        timestamp_ms=letter.at_ms,
    )


def without_value(letter: Letter) -> Letter:
    """The form of a letter that is too large: without its headers and value."""
    return replace(
        letter,
        key=letter.key if letter.key is not None and len(letter.key) <= 1_024 else None,
        value=b"",
        headers=(),
        message_id=clipped(letter.message_id),
        missing_bytes=max(1, len(letter.value)),
    )


def mark_record(subscription: str, mark: Mark) -> Record:
    """Encode a mark for letters of this subscription."""
    return Record(
        key=subscription.encode(),
        value=msgspec.json.encode(_MarkBody(mark.ids, mark.at_ms, mark.up_to_ms)),
        headers=((_MARK, mark.kind.value.encode()),),
        timestamp_ms=mark.at_ms,
    )


def read_entry(record: StoredRecord | Record) -> Letter | Mark:
    """Decode a record of a dead-letter topic. Raises UndecodableLetter."""
    headers = record.headers
    try:
        if len(headers) == 1 and headers[0][0] == _MARK:
            body = msgspec.json.decode(record.value, type=_MarkBody)
            if body.up_to_ms and len(body.up_to_ms) != len(body.ids):
                raise UndecodableLetter("a mark has one time for each id, or none")
            return Mark(MarkKind(headers[0][1].decode()), body.ids, body.at_ms, body.up_to_ms)
        return _letter(record)
    except (ValueError, KeyError, msgspec.MsgspecError) as error:
        raise UndecodableLetter(f"{type(error).__name__}: {error}") from error


def _letter(record: StoredRecord | Record) -> Letter:
    # The last occurrence: the original may be a dead letter itself, copied into a topic.
    at = max((n for n, (name, _) in enumerate(record.headers) if name == _ID), default=None)
    if at is None:
        raise UndecodableLetter(f"the record has neither {_ID} nor {_MARK}")
    ours = dict(record.headers[at:])
    fields: dict[str, Any] = {field: ours[header].decode() for header, field in _OWN}
    fields["missed"] = msgspec.json.decode(ours.get("dlq-missed", b"[]"))
    fields |= {"key": None, "value": b"", "headers": ()}
    # Headers hold numbers as text.
    return replace(
        msgspec.convert(fields, Letter, strict=False),
        key=ours.get("dlq-key"),
        is_tombstone="dlq-tombstone" in ours,
        value=record.value,
        headers=tuple(record.headers[:at]),
    )


def clipped(text: str, bytes_max: int = DETAIL_BYTES_MAX) -> str:
    """Cut the text to that many bytes of UTF-8 if it is longer."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= bytes_max:
        return text
    return encoded[: bytes_max - 3].decode("utf-8", "ignore") + "…"
