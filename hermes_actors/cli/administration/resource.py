"""Creates, shows, updates and deletes objects of the management API, in the same way for each
kind.
"""

import json
from collections.abc import Collection, Iterator
from typing import Any

from hermes_actors.cli.command_line.bodies import changes
from hermes_actors.cli.command_line.failures import CommandFailed, warn
from hermes_actors.cli.command_line.options import confirm, wants_json
from hermes_actors.cli.connection.asking import management
from hermes_actors.cli.connection.management import quoted
from hermes_actors.cli.output.render import printable, say, write_json


def topic_path(topic: str) -> str:
    """Return the path of a topic. Raises UsageWrong for an invalid name."""
    return f"/topics/{quoted(topic)}"


def subscription_path(topic: str, subscription: str | None = None) -> str:
    """Return the path of a topic's subscriptions, or of one of them. Raises UsageWrong."""
    path = f"{topic_path(topic)}/subscriptions"
    return path if subscription is None else f"{path}/{quoted(subscription)}"


def show_changed(path: str, answer: bytes, line: str) -> None:
    """Print `line`. With JSON output print the server's answer; if it is empty, the changed object.

    If the object cannot be read, that is only a warning, because the change is done.
    """
    if not wants_json():
        say(line)
    elif shown := _read_back(path, answer, line):
        write_json(shown)


def create(parent: str, path: str, body: Any, what: str) -> None:
    """Create an object with a POST to `parent`."""
    show_changed(path, management().post(parent, body), f"created {what}")


def update(path: str, pairs: list[str] | None, file: str | None, what: str, **fixed: Any) -> None:
    """Update the fields that are in the pairs or the file, and the `fixed` ones."""
    patch = changes(pairs, file)
    show_updated(path, management().put(path, fixed | patch), f"updated {what}", patch)


def show_updated(
    path: str, answer: bytes, line: str, patch: dict[str, Any], known: Collection[str] = ()
) -> None:
    """As `show_changed`, with a warning for each field of the patch that the object does not have.

    A server ignores unknown fields, so a misspelt one would look like a change. `known` fields may
    be missing.
    """
    if not wants_json():
        say(line)
    shown = _read_back(path, answer, line)
    if shown is None:
        return
    if wants_json():
        write_json(shown)
    try:
        fields = json.loads(shown)
    except (ValueError, RecursionError):
        return
    for name in unknown_fields(patch, fields):
        if name not in known:
            warn(printable(f"unknown field {name} was ignored by the server"))


def unknown_fields(patch: dict[str, Any], shown: Any, prefix: str = "") -> Iterator[str]:
    """Return the dotted names in a patch that the patched object `shown` does not have.

    Fields that the patch removes (null) do not count.
    """
    if not isinstance(shown, dict):
        return
    for key, value in patch.items():
        if key not in shown:
            if value is not None:
                yield prefix + key
        elif isinstance(value, dict):
            yield from unknown_fields(value, shown[key], f"{prefix}{key}.")


def delete(path: str, name: str, what: str, yes: bool, also: str = "") -> None:
    """Delete an object, after a confirmation. `also` names what is deleted with it."""
    confirm(what + also, yes)
    management().delete(path)
    say(json.dumps({"deleted": name}) if wants_json() else f"deleted {what}")


def _read_back(path: str, answer: bytes, line: str) -> bytes | None:
    """Return the answer, or the object if the answer is empty; None, with a warning, if it cannot
    be read.
    """
    if answer.strip():
        return answer
    try:
        return management().get(path)
    except CommandFailed as failure:
        warn(f"{line}, but: {failure.message}")
        return None
