"""Prints results: tables for people, the server's JSON for programs."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from hermes_actors.cli.command_line.failures import CommandFailed
from hermes_actors.cli.command_line.options import wants_json
from hermes_actors.model import moments
from hermes_actors.model.moments import iso_ms

_EPOCH_SECONDS = ("createdAt", "modifiedAt")
_COLOURS = {
    **dict.fromkeys(("STOPPED", "FAILING", "GONE", "NOT_READY"), "bold red"),
    **dict.fromkeys(("UNKNOWN", "SUSPENDED", "PENDING"), "yellow"),
}
"""The colours of states that need attention."""

Fields = dict[str, Any]
Columns = Mapping[str, str | Callable[[Fields], object]]
"""Title → field of the row's object, or a function of the object."""


def show_answer(content: bytes, show: Callable[[Fields], object]) -> None:
    """Print the server's JSON unchanged, or call `show` with its object. Raises CommandFailed."""
    if wants_json():
        write_json(content)
    else:
        show(parsed_object(content))


def show_names(content: bytes, title: str) -> None:
    """Print a list of names, one in each row."""
    if wants_json():
        write_json(content)
    else:
        show_rows([title], [[str(name)] for name in _parsed(content)], f"no {title.lower()}s")


def show_object(content: bytes) -> None:
    """Print one object with a row for each field; nested fields have dotted names."""
    show_answer(content, show_fields)


def show_fields(found: Fields) -> None:
    """Print a row for each field; nested fields have dotted names."""
    rows = [(key, _with_time(key, value)) for key, value in flattened(found)]
    show_rows(["", ""], rows, "", has_titles=False)


def show_table(columns: Columns, found: Iterable[Fields], nothing: str) -> None:
    """Print a table with a row for each object; `nothing` if there are no objects."""
    rows = [
        [_cell(part(each) if callable(part) else each.get(part)) for part in columns.values()]
        for each in found
    ]
    show_rows(list(columns), rows, nothing)


def _cell(value: object) -> str:
    """Format a cell. Numbers below 0 mean unknown."""
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, int) and value < 0:
        return "?"
    return "-" if value is None else str(value)


def show_rows(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    nothing: str,
    *,
    has_titles: bool = True,
) -> None:
    """Print a table; `nothing` if it has no rows. Cells are wrapped on a terminal only."""
    if not rows:
        say(nothing)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=has_titles, padding=(0, 2, 0, 0))
    for title in columns:
        table.add_column(title, overflow="fold")
    for row in rows:
        # Text, not markup, because cells may contain square brackets.
        table.add_row(*[Text(printable(cell), _COLOURS.get(cell, "")) for cell in row])
    is_terminal = sys.stdout.isatty()
    Console(file=sys.stdout, highlight=False, width=None if is_terminal else 100_000).print(table)


def parsed_object(content: bytes) -> Fields:
    """Parse the server's answer, a JSON object. Raises CommandFailed."""
    found = _parsed(content)
    if not isinstance(found, dict):
        raise CommandFailed("unexpected answer from the server: expected a JSON object")
    return found


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        begin = printable(content[:80].decode(errors="replace"))
        raise CommandFailed(
            f"the server's answer is not JSON{f': {begin}' if begin.strip() else ' but empty'}; "
            "is that URL a management API (default port 8090)?"
        ) from error


def fields_of(found: Fields, name: str) -> list[Fields]:
    """Return the objects in a list of the answer; an empty list if it is missing."""
    listed = found.get(name)
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def say_unknown(found: Fields) -> None:
    """Print a line with the reason for each datacentre about which nothing is known."""
    for dc in fields_of(found, "datacenters"):
        if not dc.get("isKnown"):
            say(f"{dc.get('datacenter')}: {dc.get('reason')}")


def full_name(found: Fields) -> str:
    """Return a subscription's name in the form that commands accept."""
    return f"{found.get('topicName')} {found.get('name')}"


def flattened(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Return the leaves of an object as (dotted name, text), in the server's order."""
    if isinstance(value, dict) and (value or not prefix):
        rows: list[tuple[str, str]] = []
        for key, each in value.items():
            rows += flattened(each, f"{prefix}.{key}" if prefix else str(key))
        return rows
    return [(prefix, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))]


def _with_time(key: str, text: str) -> str:
    """Append the UTC time to the text if the field contains epoch seconds."""
    if key not in _EPOCH_SECONDS:
        return text
    try:
        moment = datetime.fromtimestamp(float(text), UTC)
    except (ValueError, OverflowError, OSError):
        return text
    return f"{text} ({moment.isoformat(timespec='seconds').replace('+00:00', 'Z')})"


def write_json(content: bytes) -> None:
    """Write the server's bytes unchanged, and a line end."""
    sys.stdout.write(content.decode("utf-8", "replace").rstrip("\n") + "\n")
    sys.stdout.flush()


def say(text: str) -> None:
    """Print lines for people on stdout, without control characters."""
    print("\n".join(map(printable, text.split("\n"))))


def counted(number: object, noun: str) -> str:
    """Return the number with its noun, in the plural except for 1."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def known(number: object) -> str:
    """Return the number as text; `?` if the server does not know it."""
    return str(number) if isinstance(number, int) and number >= 0 else "?"


def printable(text: str) -> str:
    """Remove control characters, so that a message cannot control the terminal."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def span(seconds: object) -> str:
    """Format a duration in one unit; `?` if it is not known."""
    return moments.span(seconds) if isinstance(seconds, (int, float)) else "?"


def time_of(epoch_s: object) -> str:
    """Format a time in UTC, to the second; `?` if it is not known."""
    if not isinstance(epoch_s, (int, float)) or epoch_s <= 0:
        return "?"
    return iso_ms(round(1_000 * epoch_s), "seconds")
