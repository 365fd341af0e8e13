"""The findings of `hermes doctor`, each with its grade."""

from enum import StrEnum

from msgspec import Struct


class Grade(StrEnum):
    """As it should be; worth a look; or a node cannot work so."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


class Finding(Struct, frozen=True, rename="camel"):
    """One thing that was looked at: what was seen, and what to do about it ("" for nothing)."""

    check: str
    about: str
    grade: Grade
    seen: str
    way_out: str = ""


def well(check: str, about: str, seen: str) -> Finding:
    """All is as it should be."""
    return Finding(check, about, Grade.OK, seen)


def odd(check: str, about: str, seen: str, way_out: str) -> Finding:
    """A node works so, but somebody should look at it."""
    return Finding(check, about, Grade.WARN, seen, way_out)


def wrong(check: str, about: str, seen: str, way_out: str) -> Finding:
    """A node cannot work so, or not all of it."""
    return Finding(check, about, Grade.FAIL, seen, way_out)


def failed(check: str, about: str, message: str) -> Finding:
    """The finding for an error message of the form `what happened; the way out`."""
    seen, _, way_out = message.partition("; ")
    return wrong(check, about, seen, way_out)
