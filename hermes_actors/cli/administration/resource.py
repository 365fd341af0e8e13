"""Creating, showing, updating and deleting what management keeps, the same for each kind."""

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
    """The route of a topic. Raises UsageWrong for what is no name."""
    return f"/topics/{quoted(topic)}"


def subscription_path(topic: str, subscription: str | None = None) -> str:
    """The route of a topic's subscriptions, or of one of them. Raises UsageWrong."""
    path = f"{topic_path(topic)}/subscriptions"
    return path if subscription is None else f"{path}/{quoted(subscription)}"


def show_changed(path: str, answer: bytes, line: str) -> None:
    """Say that it was done. As JSON: the server's answer, or, as it is empty, the object read back.

    A change that was done stays done: failing to read it back is a warning.
    """
    if not wants_json():
        say(line)
    elif shown := _read_back(path, answer, line):
        write_json(shown)


def create(parent: str, path: str, body: Any, what: str) -> None:
    """Create an object below its parent's route."""
    show_changed(path, management().post(parent, body), f"created {what}")


def update(path: str, pairs: list[str] | None, file: str | None, what: str, **fixed: Any) -> None:
    """Update the fields that the pairs and the file name; `fixed` ones are sent too."""
    patch = changes(pairs, file)
    show_updated(path, management().put(path, fixed | patch), f"updated {what}", patch)


def show_updated(
    path: str, answer: bytes, line: str, patch: dict[str, Any], known: Collection[str] = ()
) -> None:
    """As `show_changed`, with a warning for each field of the patch that the object has not.

    A server ignores those, so a misspelt field would look like a done change. `known` fields may
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


def delete(path: str, name: str, what: str, yes: bool, also: str = "") -> None:
    """Delete an object, after a question that names what `also` goes with it."""
    confirm(what + also, yes)
    management().delete(path)
    say(json.dumps({"deleted": name}) if wants_json() else f"deleted {what}")


def _read_back(path: str, answer: bytes, line: str) -> bytes | None:
    """The answer, or, as it is empty, the object; None, and a warning, if it cannot be read."""
    if answer.strip():
        return answer
    try:
        return management().get(path)
    except CommandFailed as failure:
        warn(f"{line}, but: {failure.message}")
        return None
