"""Parses filters on the command line, in short form or as JSON; refuses unusable ones."""

import json
from typing import Annotated, Any

import msgspec
import typer

from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_actors.model.subscription import Filter

FilterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        metavar="jsonpath:PATH=REGEX|avropath:PATH=REGEX|header:NAME=REGEX|JSON",
        help="Deliver only messages that match; the regex must match the whole value. "
        "Repeatable: all must match. A path that contains = needs the JSON form.",
    ),
]
_KEYS = {"jsonpath": "path", "avropath": "path", "header": "header"}
_EXAMPLES = {
    "jsonpath": "jsonpath:$.country=PL",
    "avropath": "avropath:order.country=PL",
    "header": "header:Channel=web",
}
_SHORT = "jsonpath:$.country=PL, header:Channel=web, or JSON"
_KNOWN = frozenset(field.encode_name for field in msgspec.structs.fields(Filter))


def filters_of(texts: list[str] | None) -> list[Any]:
    """Convert filters to JSON, in their order. Raises UsageWrong, which names the option."""
    return [_checked(each, text) for text in texts or () for each in _parsed(text)]


def _parsed(text: str) -> list[Any]:
    kind, colon, rest = text.partition(":")
    if colon and kind in _KEYS:
        return [_short(text, kind, rest)]
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        begins = text.lstrip()[:1]
        if begins in ("{", "["):
            raise UsageWrong(f"--filter {text}: not JSON: {error}") from error
        raise UsageWrong(f"--filter '{text}': expected {_SHORT} (not JSON either)") from error
    return found if isinstance(found, list) else [found]


def _short(text: str, kind: str, rest: str) -> dict[str, str]:
    what, _, matcher = rest.partition("=")
    if not what.strip() or not matcher:
        raise UsageWrong(
            f"--filter '{text}': expected {kind}:{_KEYS[kind].upper()}=REGEX, for example "
            f"{_EXAMPLES[kind]}"
        )
    return {"type": kind, _KEYS[kind]: what.strip(), "matcher": matcher}


def _checked(filter_: Any, text: str) -> Any:
    """Return the filter unchanged; refuse unknown fields, which the server would ignore."""
    if not isinstance(filter_, dict):
        raise UsageWrong(f"--filter {text}: expected a JSON object, or {_SHORT}")
    if unknown := ", ".join(sorted(set(filter_) - _KNOWN)):
        raise UsageWrong(
            f"--filter {text}: unknown field {unknown}; there are {', '.join(sorted(_KNOWN))}"
        )
    return filter_
