"""The findings of `hermes doctor`, each with its grade."""

from enum import StrEnum

from msgspec import Struct


class Grade(StrEnum):
    """How one thing stands: as it should, worth a look, or a node cannot work so."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


class Diagnosis(Struct, frozen=True, rename="camel"):
    """One line of `hermes doctor`: what was looked at, how it stands, what was seen there, and what
    to do about it, "" for nothing.
    """

    check: str
    about: str
    grade: Grade
    seen: str
    way_out: str = ""


def fine(check: str, about: str, seen: str) -> Diagnosis:
    """A finding that needs nothing done."""
    return Diagnosis(check, about, Grade.OK, seen)


def odd(check: str, about: str, seen: str, way_out: str) -> Diagnosis:
    """A node works so, and somebody should look at it."""
    return Diagnosis(check, about, Grade.WARN, seen, way_out)


def wrong(check: str, about: str, seen: str, way_out: str) -> Diagnosis:
    """A node cannot work so, or not all of it."""
    return Diagnosis(check, about, Grade.FAIL, seen, way_out)


def span_of(duration_ms: float) -> str:
    """A duration in one fitting unit."""
    if duration_ms < 1_000:
        return f"{duration_ms:.1f} ms" if duration_ms < 10 else f"{duration_ms:.0f} ms"
    seconds = duration_ms / 1_000
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s"


def size_of(size_bytes: float) -> str:
    """A size in one fitting unit, of 1,024 each."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size_bytes < 1_024:
            return f"{size_bytes:.0f} {unit}" if unit == "bytes" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1_024
    return f"{size_bytes:.1f} TiB"
