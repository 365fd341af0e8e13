"""Builds request bodies and times from the command line. Functions raise UsageWrong with the
reason.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_actors.model.moments import FORMS, is_of_some_zone, iso_ms, moment_ms

_RETENTION = re.compile(r"(\d+)\s*(s|m|h|d)")
_UNITS = {"s": "SECONDS", "m": "MINUTES", "h": "HOURS", "d": "DAYS"}


def retention(text: str) -> dict[str, Any]:
    """Convert a retention time such as `90s`, `30m`, `12h` or `7d` to JSON."""
    match = _RETENTION.fullmatch(text.strip().lower())
    if match is None:
        raise UsageWrong(
            f"--retention '{text}': expected a whole number and a unit, like 12h or 1d "
            "(s, m, h or d)"
        )
    if int(match[1]) == 0:
        raise UsageWrong(
            f"--retention '{text}': a topic that keeps nothing would lose acknowledged messages; "
            "the minimum is 1s (s, m, h or d)"
        )
    return {"duration": int(match[1]), "retentionUnit": _UNITS[match[2]]}


def owner(text: str) -> dict[str, str]:
    """Convert an owner `source:id` to JSON."""
    source, colon, identity = text.partition(":")
    if not (source and colon and identity):
        raise UsageWrong(f"--owner '{text}': expected source:id, for example Plaintext:team-shop")
    return {"source": source, "id": identity}


def patch(pairs: list[str]) -> dict[str, Any]:
    """Build a patch from `key=value` pairs. Dotted keys nest; values are JSON, or else text.

    The last of equal keys counts; a key cannot be both a value and a parent.
    """
    tree: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        parts = key.split(".")
        if not equals or not all(parts):
            raise UsageWrong(
                f"'{pair}': expected key=value, for example retentionTime.duration=2 or ack=ALL"
            )
        node = tree
        for part in parts[:-1]:
            child = node.setdefault(part, {})
            if not isinstance(child, dict):
                raise UsageWrong(f"'{pair}': '{part}' already has a value; give one or the other")
            node = child
        node[parts[-1]] = _value(text)
    return tree


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
    except RecursionError as error:
        raise UsageWrong(f"'{text[:40]}…': nested too deep") from error


def merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Merge `over` into `under`, nested objects key by key, as the server merges patches."""
    result = dict(under)
    for key, value in over.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            result[key] = merged(old, value)
        else:
            result[key] = value
    return result


def from_file(name: str | None) -> dict[str, Any]:
    """Read a JSON object from a file, or from stdin for `-`; {} for None."""
    if name is None:
        return {}
    try:
        body = json.loads(text_from_file("--from-file", name))
    except (ValueError, RecursionError) as error:
        raise UsageWrong(f"--from-file {name}: not JSON: {error}") from error
    if not isinstance(body, dict):
        raise UsageWrong(f"--from-file {name}: expected a JSON object")
    return body


def text_from_file(option: str, name: str) -> str:
    """Read text from a file, or from stdin for `-`. Raises UsageWrong."""
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageWrong(f"{option} {name}: cannot be read: {reason}") from error


def changes(pairs: list[str] | None, file: str | None) -> dict[str, Any]:
    """Build an update's patch: the pairs override the file. Refuses an empty patch."""
    body = merged(from_file(file), patch(pairs or []))
    if not body:
        raise UsageWrong(
            "nothing to update: give key=value pairs (ack=ALL) or --from-file patch.json"
        )
    return body


TIME_HELP = "2030-01-31T12:00:00Z, or how long ago: 30m, 1h, 2d"


def time_to_send(option: str, text: str, instead: str = "") -> str:
    """Return a checked time as it is sent. A relative time is unchanged, because the server's clock
    counts.

    `instead` names other valid values, for the error. Raises UsageWrong.
    """
    try:
        time_ms = moment_ms(text, 0, zone=None)
    except ValueError as error:
        raise UsageWrong(f"{option} '{text}': expected {instead}{FORMS}") from error
    return iso_ms(time_ms) if is_of_some_zone(text) else text.strip()


def optional_time(option: str, text: str | None) -> str | None:
    """As `time_to_send`, for an option that may be missing."""
    return None if text is None else time_to_send(option, text)
