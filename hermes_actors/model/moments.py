"""Reads and writes points in time for people and programs: ISO 8601, epoch milliseconds, or how
long ago.
"""

import re
from datetime import UTC, datetime, timedelta, tzinfo

FORMS = "a time such as 2030-01-31T12:00:00Z, how long ago (15m, 1h, 2d), or epoch milliseconds"
"""The accepted forms, for errors and help."""

_SPAN = re.compile(r"([0-9]{1,9})(s|m|h|d|w)")
# With fewer digits it would be seconds, or a date, mistaken for milliseconds.
_EPOCH_MS = re.compile(r"0|[0-9]{12,15}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = 253_402_300_799_999
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def moment_ms(text: str, now_ms: int, *, zone: tzinfo | None = UTC) -> int:
    """Parse a point in time to epoch milliseconds; 0 for anything before 1970.

    `1h` is an hour before `now_ms`. A time without a zone is in `zone` (None: the machine's).
    Raises ValueError with the text FORMS.
    """
    text = text.strip()
    if (length_ms := span_ms(text)) is not None:
        return max(0, now_ms - length_ms)
    if _EPOCH_MS.fullmatch(text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.astimezone() if zone is None else moment.replace(tzinfo=zone)
        return max(0, round(moment.timestamp() * 1_000))
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(FORMS) from error


def span_ms(text: str) -> int | None:
    """Parse a duration such as 15m, 1h or 90d to milliseconds; None if it is none."""
    length = _SPAN.fullmatch(text.strip())
    return None if length is None else int(length[1]) * _UNIT_MS[length[2]]


def is_of_some_zone(text: str) -> bool:
    """True for a date or time without a zone, so that its offset is unknown."""
    try:
        return datetime.fromisoformat(text.strip()).tzinfo is None
    except ValueError:
        return False


def span(seconds: float) -> str:
    """A duration for people, in one unit; all reasons and tables use this form."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def iso_ms(epoch_ms: int, timespec: str = "milliseconds") -> str:
    """Epoch milliseconds as ISO 8601 in UTC, ending in Z; values outside the calendar are
    clamped.
    """
    moment = _EPOCH + timedelta(milliseconds=min(max(epoch_ms, 0), _LAST_MS))
    return moment.isoformat(timespec=timespec).replace("+00:00", "Z")
