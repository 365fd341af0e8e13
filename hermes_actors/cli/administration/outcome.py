"""Shows what a change or a deletion led to: a line for people, JSON for programs."""

import json
from collections.abc import Callable, Collection, Iterator
from typing import Any

from hermes_actors.cli.command_line.failures import CommandFailed, warn
from hermes_actors.cli.command_line.options import Output
from hermes_actors.cli.connection.management import ManagementClient
from hermes_actors.cli.output.render import printable, say, write_json


def show_changed(
    client: ManagementClient, path: str, answer: bytes, line: str, output: Output
) -> None:
    """Say that it was done. As JSON: the server's answer, or, as it is empty, the object read back.

    A change that was done stays done: failing to read it back is a warning.
    """
    if output is Output.TABLE:
        say(line)
        return
    shown = _read_back(client, path, answer, line)
    if shown is not None:
        write_json(shown)


def show_updated(
    client: ManagementClient,
    path: str,
    answer: bytes,
    line: str,
    output: Output,
    patch: dict[str, Any],
    unshown: Callable[[dict[str, Any]], Collection[str]] | None = None,
) -> None:
    """As `show_changed`, with a warning for each field of the patch that the object has not.

    A server ignores those without a word, so a misspelt field would look like a done change.
    `unshown` names the fields (dotted) that such an object may have without showing them.
    """
    if output is Output.TABLE:
        say(line)
    shown = _read_back(client, path, answer, line)
    if shown is None:
        return
    if output is Output.JSON:
        write_json(shown)
    try:
        fields = json.loads(shown)
    except (ValueError, RecursionError):
        return
    known = unshown(fields) if unshown and isinstance(fields, dict) else ()
    for name in unknown_fields(patch, fields):
        if name in known:
            continue
        warn(f"unknown field {printable(name)} was ignored by the server")


def unknown_fields(patch: dict[str, Any], shown: Any, prefix: str = "") -> Iterator[str]:
    """The dotted names in a patch that the object does not have after it.

    A field that was unset (null) may rightly be gone.
    """
    if not isinstance(shown, dict):
        return
    for key, value in patch.items():
        if key not in shown:
            if value is not None:
                yield prefix + key
        elif isinstance(value, dict):
            yield from unknown_fields(value, shown[key], f"{prefix}{key}.")


def _read_back(client: ManagementClient, path: str, answer: bytes, line: str) -> bytes | None:
    """The answer, or, as it is empty, the object; None, and a warning, if it cannot be read."""
    if answer.strip():
        return answer
    try:
        return client.get(path)
    except CommandFailed as failure:
        warn(f"{line}, but: {failure.message}")
        return None
