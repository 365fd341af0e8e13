"""A dead letter's record: a message that was given up, as it lay in its log, with why and after
what; and the marks that close letters.

The record's key is the subscription's full name, so that all its letters lie in one partition, in
order. Its value and first headers are the original's; ours follow, from `dlq-id` on. Of all records
with one letter's id the last decides: a letter makes it open (a re-drive that failed makes a newer
one), a mark closes it, unless the message was given up anew after what the mark tells of. So a
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
"""The most that a letter's detail takes; what is longer is cut."""

MARK_IDS_MAX = 200
"""The most letters that one mark closes."""

MISSED_BYTES_MAX = 8_192
"""The most bytes kept of who missed a message; of more nothing is, and a re-drive goes to all."""

_ID = "dlq-id"
_MARK = "dlq-mark"
_EVER_MS = float("inf")


class UndecodableLetter(Exception):
    """The record is neither a letter nor a mark that this version can read."""


class DiscardReason(StrEnum):
    """The reason for which a message is given up."""

    CLIENT_ERROR = "client-error"
    DISCARD_STATUS = "discard-status"
    EXPIRED = "expired"
    ATTEMPTS = "attempts"
    UNDECODABLE = "undecodable"
    TOO_LARGE = "too-large"
    FILTER_TIME = "filter-time"

    @property
    def is_the_messages(self) -> bool:
        """True when the endpoint is well, and says that it does not take this message."""
        return self in (DiscardReason.CLIENT_ERROR, DiscardReason.DISCARD_STATUS)


class MarkKind(StrEnum):
    """The reason for which letters are closed."""

    REDRIVEN = "redriven"
    EXPIRED = "expired"


class Letter(Struct, frozen=True, gc=False):
    """One dead letter. What is about the message is the original's: where it lay, its log's
    timestamp, key, headers and value.

    `incarnation` is the subscription's life. `attempts` were made since it was read or re-driven
    last; `status` is the last answer's, 0 when there was none. `redrives` says how often it was
    given up again after a re-drive. `missing_bytes` is above 0 where the value, of so many bytes,
    was too large to be kept: it is in the topic's log only, as long as that keeps it.
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
    """Of a message to all recipients, those who have not taken it, without queries; empty where it
    went to one, or where they are too many to be kept.
    """

    @property
    def id(self) -> str:
        """The letter's id, the same for every letter about this message and this life of the
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
    """Closes the letters of these ids that stand before it.

    `up_to_ms`, where it is not empty, has for each id the time of the last giving up that it
    closes: a message may be delivered, and given up anew before its mark is stored.
    """

    kind: MarkKind
    ids: tuple[str, ...]
    at_ms: int
    up_to_ms: tuple[int, ...] = ()

    def closings(self) -> Iterable[tuple[str, float]]:
        """Each id with the time up to which giving it up is closed."""
        return zip(self.ids, self.up_to_ms or repeat(_EVER_MS), strict=False)


class _MarkBody(Struct, frozen=True, omit_defaults=True):
    ids: Annotated[tuple[str, ...], Meta(max_length=10 * MARK_IDS_MAX)]
    at_ms: int
    up_to_ms: tuple[int, ...] = ()


class LetterFilter(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A choice of letters; what is not set, or empty, leaves all. Times are those of giving up,
    `since_ms` included, `until_ms` not.
    """

    ids: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    statuses: tuple[int, ...] = ()
    message_id: str = ""
    since_ms: int | None = None
    until_ms: int | None = None

    def compiled(self) -> Callable[[Letter], bool]:
        """Give a predicate that tells, for many letters, whether each of them is meant."""
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
    """The letters that are open, told from the newest record to the oldest. It knows as many ids as
    were taken; whoever reads bounds that.
    """

    def __init__(self) -> None:
        # Up to when the giving up of each id is told of by what is newer.
        self._decided: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._decided)

    def take(self, entry: Letter | Mark) -> bool:
        """The next older entry; True for a letter that is open."""
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
    """The log topic that holds the dead letters of a group's subscriptions."""
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
"""The headers that hold a letter's fields as text. `dlq-key`, `dlq-tombstone` and `dlq-missed` come
beside them.
"""


def letter_record(letter: Letter) -> Record:
    """The record that keeps this letter."""
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
    """The letter as it is kept when it is too large: its headers and value are left out."""
    return replace(
        letter,
        key=letter.key if letter.key is not None and len(letter.key) <= 1_024 else None,
        value=b"",
        headers=(),
        message_id=clipped(letter.message_id),
        missing_bytes=max(1, len(letter.value)),
    )


def mark_record(subscription: str, mark: Mark) -> Record:
    """The record of a mark for letters of this subscription."""
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
    # The last one: an original may be a dead letter itself, copied into a topic.
    at = max((n for n, (name, _) in enumerate(record.headers) if name == _ID), default=None)
    if at is None:
        raise UndecodableLetter(f"the record has neither {_ID} nor {_MARK}")
    ours = dict(record.headers[at:])
    fields: dict[str, Any] = {field: ours[header].decode() for header, field in _OWN}
    fields["missed"] = msgspec.json.decode(ours.get("dlq-missed", b"[]"))
    fields |= {"key": None, "value": b"", "headers": ()}
    # Numbers are text in headers.
    return replace(
        msgspec.convert(fields, Letter, strict=False),
        key=ours.get("dlq-key"),
        is_tombstone="dlq-tombstone" in ours,
        value=record.value,
        headers=tuple(record.headers[:at]),
    )


def clipped(text: str, bytes_max: int = DETAIL_BYTES_MAX) -> str:
    """The text, cut to that many bytes of UTF-8 if it is longer."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= bytes_max:
        return text
    return encoded[: bytes_max - 3].decode("utf-8", "ignore") + "…"
