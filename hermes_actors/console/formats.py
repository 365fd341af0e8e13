"""How pages write numbers, times and states."""

import difflib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from hermes_actors.model.moments import iso_ms, moment_ms, span

UNKNOWN = "unknown"

GOOD, WARN, BAD, IDLE = "good", "warn", "bad", "idle"
_TONES: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(("UP", "READY", "ACTIVE", "DELIVERING", "HEALTHY", "FULL", "CURRENT"), GOOD)
    | dict.fromkeys(
        ("STOPPED", "FAILING", "GONE", "UNHEALTHY", "HEARTBEAT", "DOWN", "LOSING", "SILENT"), BAD
    )
    | dict.fromkeys(
        ("NOT_READY", "SUSPENDED", "ADAPTING", "SLOW", "UNKNOWN", "NO_DATA", "NOTICE"), WARN
    )
)
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")
TEXT_MAX = 4_000
SPARK_WIDTH, SPARK_HEIGHT = 120, 28


def tone(state: str) -> str:
    """good, warn, bad or idle: the class of a state's badge."""
    return _TONES.get(state, IDLE)


def words(state: str) -> str:
    """A state as people say it: NOT_READY becomes `not ready`."""
    return state.replace("_", " ").lower()


def count(value: float | str | None) -> str:
    """A whole number with separators; `unknown` for None and -1."""
    if value is None or isinstance(value, str) or value < 0:
        return UNKNOWN
    return f"{value:,.0f}"


def rate(value: float | str | None) -> str:
    """A number per second, with a decimal below 100; `unknown` for None and -1."""
    if value is None or isinstance(value, str) or value < 0:
        return UNKNOWN
    if 0 < value < 0.05:
        return "<0.1"
    return f"{value:,.1f}" if 0 < value < 100 else f"{value:,.0f}"


def size(value: float) -> str:
    """Bytes in the largest unit that leaves one or more."""
    for unit in _BYTES[:-1]:
        if value < 1_024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1_024
    return f"{value:.1f} {_BYTES[-1]}"


def moment(epoch_ms: float) -> str:
    """A point in time, to the second, as `2030-01-31 12:00:00`, in UTC."""
    return iso_ms(int(epoch_ms), "seconds")[:-1].replace("T", " ")


def ago(epoch_ms: float, now_ms: float) -> str:
    """How long before `now_ms`: `5 min ago`."""
    passed_s = (now_ms - epoch_ms) / 1_000
    return "just now" if passed_s < 1 else f"{span(passed_s)} ago"


def json(value: Any) -> str:
    """A value as indented JSON, cut off after TEXT_MAX characters; empty for None."""
    if value is None:
        return ""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}\n…"


def epoch_ms(iso: str) -> int:
    """An ISO 8601 time of an answer as milliseconds since 1970."""
    return moment_ms(iso, 0)


def pretty(text: str) -> str:
    """JSON with indents; other text unchanged."""
    try:
        return msgspec.json.format(text, indent=2)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return text


def difference(old: str, new: str) -> list[str]:
    """The lines that differ, with some around them; the first character of each says which.

    Called in a worker process, which imports this module for it.
    """
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="")
    return list(lines)[2:]


def points(values: Sequence[float]) -> str:
    """The points of a sparkline. The newest value is at the right, 0 at the bottom."""
    top = max(values, default=0) or 1
    step = SPARK_WIDTH / max(len(values) - 1, 1)
    height = SPARK_HEIGHT - 2
    return " ".join(
        f"{at * step:.1f},{SPARK_HEIGHT - 1 - each / top * height:.1f}"
        for at, each in enumerate(values)
    )


def flat(value: Mapping[str, Any] | None, path: str = "") -> dict[str, str]:
    """The fields of a JSON object as texts, by their paths. A list has an item a line; fields
    without a value are left out.
    """
    found: dict[str, str] = {}
    for name, each in (value or {}).items():
        if isinstance(each, dict):
            found |= flat(each, f"{path}{name}.")
        elif each is not None:
            items = each if isinstance(each, list) else [each]
            found[path + name] = "\n".join(map(_text, items))
    return found


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def changed(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> list[tuple[str, str, str]]:
    """The path of each field that differs, its old and its new text."""
    old, new = flat(before), flat(after)
    texts = [(name, old.get(name, ""), new.get(name, "")) for name in old | new]
    return [each for each in texts if each[1] != each[2]]


FILTERS: Mapping[str, Any] = MappingProxyType(
    {
        each.__name__: each
        for each in (
            tone,
            words,
            count,
            rate,
            size,
            span,
            moment,
            ago,
            epoch_ms,
            json,
            pretty,
            points,
            iso_ms,
            changed,
        )
    }
)
"""The filters of all templates."""
