"""The findings of `hermes doctor`, each with its grade."""

from datetime import UTC, datetime
from enum import StrEnum

from cryptography import x509
from msgspec import Struct

from hermes_actors.model.moments import span

_RENEWED_BEFORE_S = 14 * 86_400


class Grade(StrEnum):
    """How serious a finding is: fine, worth a look, or a node cannot work like this."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


OK, WARN, FAIL = Grade


class Finding(Struct, frozen=True, rename="camel"):
    """The result of one check: what was seen, and the remedy; empty string if none is needed."""

    check: str
    about: str
    grade: Grade
    seen: str
    way_out: str = ""


def finding(grade: Grade, check: str, about: str, text: str) -> Finding:
    """Make a finding from a text of the form `what was seen; the remedy`."""
    seen, _, way_out = text.partition("; ")
    return Finding(check, about, grade, seen, way_out)


def certificate_finding(
    check: str, about: str, shown: x509.Certificate, now_ms: int, note: str = ""
) -> Finding:
    """Check whether a certificate is valid, and for how long. A `note` makes it worth a look."""
    now = datetime.fromtimestamp(now_ms / 1_000, UTC)
    if now < shown.not_valid_before_utc:
        begin = f"{shown.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
        text = f"valid only from {begin}; set this machine's clock right, or wait"
        return finding(FAIL, check, about, text)
    left_s = (shown.not_valid_after_utc - now).total_seconds()
    if left_s <= 0:
        return finding(FAIL, check, about, f"expired {span(-left_s)} ago; renew it")
    seen = f"valid for another {span(left_s)}"
    if note:
        return finding(WARN, check, about, f"{seen}, {note}")
    if left_s < _RENEWED_BEFORE_S:
        return finding(WARN, check, about, f"{seen}; renew it")
    return finding(OK, check, about, seen)
