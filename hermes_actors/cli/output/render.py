"""Prints what a command found: tables for people, the server's own JSON for programs."""

import json
import sys
import textwrap
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from hermes_actors.cli.command_line.failures import CommandFailed
from hermes_actors.cli.command_line.options import Output
from hermes_actors.model import moments
from hermes_actors.model.moments import iso_ms

_EPOCH_SECONDS = ("createdAt", "modifiedAt")
_GAP = "  "
_SENTENCE_WIDTH_MIN = 40
"""In less room than this beside its row a sentence is hard to read."""


_STATE = "State"
_COLOURS = {
    **dict.fromkeys(("STOPPED", "FAILING", "GONE", "NOT_READY"), "bold red"),
    **dict.fromkeys(("UNKNOWN", "SUSPENDED", "PENDING"), "yellow"),
}
"""How states that somebody should look at are shown."""


def show_names(content: bytes, title: str, output: Output) -> None:
    """A list of names, one a row."""
    if output is Output.JSON:
        write_json(content)
        return
    from rich.table import Table

    names = _parsed(content)
    table = Table(title=None, box=None, pad_edge=False)
    table.add_column(title, no_wrap=True)
    for name in names:
        table.add_row(str(name))
    _print(table if names else f"no {title.lower()}s")


def show_object(content: bytes, output: Output) -> None:
    """One object, a row for each field, nested ones with dotted names."""
    if output is Output.JSON:
        write_json(content)
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="cyan", no_wrap=True)
    # Text, not markup: a description may hold square brackets. Folded, never cut off.
    table.add_column(overflow="fold")
    for key, value in flattened(_parsed(content)):
        table.add_row(key, Text(printable(_with_time(key, value))))
    _print(table)


def show_answer(content: bytes, output: Output, show: Callable[[dict[str, Any]], object]) -> None:
    """The server's JSON as it is; for people the object in it by `show`. Raises CommandFailed."""
    if output is Output.JSON:
        write_json(content)
    else:
        show(parsed_object(content))


def show_rows(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    nothing: str,
    *,
    optional: Sequence[str] = (),
    has_sentences: bool = False,
) -> None:
    """A table with one line of titles; `nothing` in its place when it has no rows.

    Cells are neither wrapped nor cut off. Where the terminal is too narrow the `optional` columns
    are left out, the first one first. With `has_sentences` the last column is wrapped between
    words, and below its row where beside it there is little room.
    """
    from rich.cells import cell_len, set_cell_size
    from rich.console import Console
    from rich.text import Text

    console = Console(file=sys.stdout, highlight=False)
    if not rows:
        console.print(nothing)
        return
    table = [list(columns), *([printable(cell) for cell in row] for row in rows)]
    sentences = [row.pop() for row in table] if has_sentences else [""] * len(table)
    widths = [max(map(cell_len, column)) for column in zip(*table, strict=True)]
    for title in optional:
        if _line_width(widths) > console.width:
            at = table[0].index(title)
            del widths[at]
            for row in table:
                del row[at]
    indent = _line_width(widths) + len(_GAP)
    room = console.width - indent
    is_below = room < min(max(map(cell_len, sentences)), _SENTENCE_WIDTH_MIN)
    if is_below:
        indent = 2 * len(_GAP)
        # Nothing stands below a title.
        sentences[0] = ""
    state_at = table[0].index(_STATE) if _STATE in table[0] else None
    for number, (row, sentence) in enumerate(zip(table, sentences, strict=True)):
        parts = Text(sentence).wrap(console, max(1, console.width - indent)) if sentence else ()
        said = [" " * indent + part.plain for part in parts]
        line = _GAP.join(set_cell_size(*cell) for cell in zip(row, widths, strict=True))
        if said and not is_below:
            line += _GAP + said.pop(0)[indent:]
        for each in (line, *said):
            text = Text(each.rstrip(), "" if number else "bold")
            if state_at is not None and each is line:
                at = _line_width(widths[:state_at]) + (len(_GAP) if state_at else 0)
                text.stylize(_COLOURS.get(row[state_at], ""), at, at + len(row[state_at]))
            console.print(text, soft_wrap=True)


def _line_width(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def parsed_object(content: bytes) -> dict[str, Any]:
    """The JSON object that the server answered with. Raises CommandFailed."""
    found = _parsed(content)
    if not isinstance(found, dict):
        raise CommandFailed("the server's answer is not what was asked for: expected an object")
    return found


def fields_of(found: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The objects in a list of the answer, none where it is not there."""
    listed = found.get(name, [])
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def say_unknown(found: dict[str, Any]) -> None:
    """A line for each datacentre of the answer of which nothing is known, with the reason."""
    for dc in fields_of(found, "datacenters"):
        if not dc.get("isKnown"):
            say(printable(f"{dc.get('datacenter')}: {dc.get('reason')}"))


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        begin = printable(content[:80].decode(errors="replace"))
        raise CommandFailed(
            f"the server's answer is not JSON{f': {begin}' if begin.strip() else ' but empty'}; "
            "is that URL a management API (default port 8090)?"
        ) from error


def flattened(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    """The leaves of an object as (dotted name, text), in the server's order."""
    if isinstance(value, dict) and (value or not prefix):
        rows: list[tuple[str, str]] = []
        for key, each in value.items():
            rows += flattened(each, f"{prefix}.{key}" if prefix else str(key))
        return rows
    return [(prefix, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))]


def _with_time(key: str, text: str) -> str:
    """The text, with the UTC time after it where the field holds epoch seconds."""
    if key not in _EPOCH_SECONDS:
        return text
    try:
        moment = datetime.fromtimestamp(float(text), UTC)
    except (ValueError, OverflowError, OSError):
        return text
    return f"{text} ({moment.isoformat(timespec='seconds').replace('+00:00', 'Z')})"


def write_json(content: bytes) -> None:
    """The server's bytes as they are, and a line end."""
    sys.stdout.write(content.decode("utf-8", "replace").rstrip("\n") + "\n")
    sys.stdout.flush()


def say(text: str) -> None:
    """One line for people, on stdout."""
    print(text)


def say_wrapped(text: str) -> None:
    """The same for a sentence of any length: on a terminal broken between words, what follows
    indented. In a pipe it is one line, so that it can be searched, and commands in it copied.
    """
    from rich.console import Console

    console = Console(file=sys.stdout)
    width = max(_SENTENCE_WIDTH_MIN, console.width) if console.is_terminal else sys.maxsize
    indent = " " * 2 * len(_GAP)
    say(
        textwrap.fill(
            printable(text),
            width,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    )


def counted(number: object, noun: str) -> str:
    """The number with its noun, in the plural but for 1."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def known(number: object) -> str:
    """The number; `?` where the server does not know it: there is none, or one below 0."""
    return str(number) if isinstance(number, int) and number >= 0 else "?"


def listed(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def printable(text: str) -> str:
    """The text without control characters, so that a message cannot steer the terminal."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def _print(what: Any) -> None:
    from rich.console import Console

    Console(file=sys.stdout, highlight=False).print(what)


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
