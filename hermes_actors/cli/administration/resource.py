"""The description of a resource of management, and the commands that all have, made of that."""

import difflib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import typer

from hermes_actors.cli.administration.arguments import (
    GroupArgument,
    SubscriptionArgument,
    TopicArgument,
)
from hermes_actors.cli.command_line.bodies import changes
from hermes_actors.cli.command_line.failures import CommandFailed, warn
from hermes_actors.cli.command_line.options import (
    FromFileOption,
    Output,
    OutputOption,
    PatchArgument,
    YesOption,
    confirm,
)
from hermes_actors.cli.connection.asking import management_command
from hermes_actors.cli.connection.management import ManagementClient, quoted
from hermes_actors.cli.output.render import (
    flattened,
    printable,
    say,
    show_names,
    show_object,
    write_json,
)


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
        near = difflib.get_close_matches(name, [path for path, _ in flattened(fields)], 1)
        meant = f"; did you mean {near[0]}?" if near else ""
        warn(printable(f"unknown field {name} was ignored by the server{meant}"))


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


Body = Callable[[dict[str, str], dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class Resource:
    """One kind of thing that management keeps.

    `words` says which one it is, for people, and `route` where it is kept; both name the command's
    `arguments`, of which the last is its own name. `unshown` names the fields, dotted, that such an
    object may have without showing them.
    """

    words: str
    route: str
    arguments: Mapping[str, Any]
    unshown: Callable[[dict[str, Any]], Collection[str]] | None = None

    def path(self, **names: str) -> str:
        """The route of one of them. Raises UsageWrong for what is no name."""
        return self.route.format(**{key: quoted(name) for key, name in names.items()})

    def all_path(self, **names: str) -> str:
        """The route of all of them, below those that are named."""
        return self.path(**names, **{[*self.arguments][-1]: "_"}).removesuffix("/_")

    def create(self, client: ManagementClient, body: Any, output: Output, **names: str) -> None:
        """Create one, and say so."""
        *above, _ = self.arguments
        answer = client.post(self.all_path(**{key: names[key] for key in above}), body)
        line = f"created {self.words.format(**names)}"
        show_changed(client, self.path(**names), answer, line, output)

    def change(
        self,
        client: ManagementClient,
        body: dict[str, Any],
        output: Output,
        names: Mapping[str, str],
    ) -> None:
        """Change one, say so, and warn of fields that it does not have."""
        path, line = self.path(**names), f"updated {self.words.format(**names)}"
        answer = client.put(path, body)
        show_updated(client, path, answer, line, output, body, self.unshown)

    def add_list(self, app: typer.Typer, about: str, title: str, *lines: str) -> None:
        """Add the command `list`: the names of all of them."""

        @management_command(app, *lines, name="list", about=about)
        def list_names(client: ManagementClient, output: OutputOption = Output.TABLE) -> None:
            show_names(client.get(self.all_path()), title, output)

    def add_show(self, app: typer.Typer, about: str, *lines: str) -> None:
        """Add the command `show`: one of them."""

        @management_command(app, *lines, name="show", about=about, arguments=self.arguments)
        def show(
            client: ManagementClient, output: OutputOption = Output.TABLE, **names: str
        ) -> None:
            show_object(client.get(self.path(**names)), output)

    def add_update(
        self, app: typer.Typer, about: str, *lines: str, body: Body | None = None
    ) -> None:
        """Add the command `update`: some fields of one of them.

        `body` makes a body of its name and its changes.
        """

        @management_command(app, *lines, name="update", about=about, arguments=self.arguments)
        def update(
            client: ManagementClient,
            pairs: PatchArgument = None,
            from_file: FromFileOption = None,
            output: OutputOption = Output.TABLE,
            **names: str,
        ) -> None:
            patch = changes(pairs, from_file)
            self.change(client, body(names, patch) if body else patch, output, names)

    def add_delete(self, app: typer.Typer, about: str, *lines: str, also: str = "") -> None:
        """Add the command `delete`: one of them, and what `also` says goes with it."""

        @management_command(app, *lines, name="delete", about=about, arguments=self.arguments)
        def delete(
            client: ManagementClient,
            yes: YesOption = False,
            output: OutputOption = Output.TABLE,
            **names: str,
        ) -> None:
            path, words = self.path(**names), self.words.format(**names)
            confirm(words + also, yes)
            client.delete(path)
            deleted = json.dumps({"deleted": names[[*self.arguments][-1]]})
            say(deleted if output is Output.JSON else f"deleted {words}")


GROUP = Resource("group {group}", "/groups/{group}", {"group": GroupArgument})
TOPIC = Resource("topic {topic}", "/topics/{topic}", {"topic": TopicArgument})
SUBSCRIPTION = Resource(
    "subscription {subscription} of {topic}",
    "/topics/{topic}/subscriptions/{subscription}",
    {"topic": TopicArgument, "subscription": SubscriptionArgument},
)


def subscription_path(topic: str, subscription: str | None = None) -> str:
    """The route of a topic's subscriptions, or of one of them. Raises UsageWrong."""
    if subscription is None:
        return SUBSCRIPTION.all_path(topic=topic)
    return SUBSCRIPTION.path(topic=topic, subscription=subscription)
