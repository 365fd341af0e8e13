"""How long and when, as people read it; `?` where it is not known."""

from hermes_actors.model import moments
from hermes_actors.model.moments import iso_ms


def span(seconds: object) -> str:
    """How long, in one unit; `?` where it is not known."""
    return moments.span(seconds) if isinstance(seconds, (int, float)) else "?"


def time_of(epoch_s: object) -> str:
    """The time in UTC, to the second; `?` where it is not known."""
    if not isinstance(epoch_s, (int, float)) or epoch_s <= 0:
        return "?"
    return iso_ms(round(1_000 * epoch_s), "seconds")


def age(duration_ms: int) -> str:
    """A duration as people say it: in its two largest units."""
    seconds = max(duration_ms, 0) // 1_000
    for unit, smaller, length, part in (("d", "h", 86_400, 3_600), ("h", "min", 3_600, 60)):
        if seconds >= length:
            return f"{seconds // length} {unit} {seconds % length // part} {smaller}"
    if seconds >= 60:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{max(duration_ms, 0) / 1_000:.1f} s"
