"""The description of a resource of management, and the commands that all have, made of that."""

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import typer

from hermes_actors.cli.command_line.bodies import changes
from hermes_actors.cli.command_line.options import (
    MANAGEMENT_URL_DEFAULT,
    FromFileOption,
    GroupArgument,
    ManagementOption,
    Output,
    OutputOption,
    PatchArgument,
    SubscriptionArgument,
    TopicArgument,
    YesOption,
    examples,
)
from hermes_actors.cli.command_line.plain import PlainCommand
from hermes_actors.cli.connection.management import ManagementClient, quoted
from hermes_actors.cli.output.outcome import delete_object, show_changed, show_updated
from hermes_actors.cli.output.render import show_names, show_object

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
        self, management: str, body: dict[str, Any], output: Output, names: Mapping[str, str]
    ) -> None:
        """Change one, say so, and warn of fields that it does not have."""
        path, line = self.path(**names), f"updated {self.words.format(**names)}"
        with ManagementClient(management) as client:
            answer = client.put(path, body)
            show_updated(client, path, answer, line, output, body, self.unshown)

    def add_list(self, app: typer.Typer, about: str, title: str, *lines: str) -> None:
        """Add the command `list`: the names of all of them."""

        @app.command("list", cls=PlainCommand, help=about, epilog=examples(*lines))
        def list_names(
            management: ManagementOption = MANAGEMENT_URL_DEFAULT,
            output: OutputOption = Output.TABLE,
        ) -> None:
            with ManagementClient(management) as client:
                show_names(client.get(self.all_path()), title, output)

    def add_show(self, app: typer.Typer, about: str, *lines: str) -> None:
        """Add the command `show`: one of them."""

        def show(
            management: ManagementOption = MANAGEMENT_URL_DEFAULT,
            output: OutputOption = Output.TABLE,
            **names: str,
        ) -> None:
            with ManagementClient(management) as client:
                show_object(client.get(self.path(**names)), output)

        self._add(app, "show", show, about, lines)

    def add_update(
        self, app: typer.Typer, about: str, *lines: str, body: Body | None = None
    ) -> None:
        """Add the command `update`: some fields of one of them.

        `body` makes a body of its name and its changes.
        """

        def update(
            pairs: PatchArgument = None,
            from_file: FromFileOption = None,
            management: ManagementOption = MANAGEMENT_URL_DEFAULT,
            output: OutputOption = Output.TABLE,
            **names: str,
        ) -> None:
            patch = changes(pairs, from_file)
            self.change(management, body(names, patch) if body else patch, output, names)

        self._add(app, "update", update, about, lines)

    def add_delete(self, app: typer.Typer, about: str, *lines: str, also: str = "") -> None:
        """Add the command `delete`: one of them, and what `also` says goes with it."""

        def delete(
            yes: YesOption = False,
            management: ManagementOption = MANAGEMENT_URL_DEFAULT,
            output: OutputOption = Output.TABLE,
            **names: str,
        ) -> None:
            own_name = names[[*self.arguments][-1]]
            words = self.words.format(**names)
            delete_object(self.path(**names), own_name, words, yes, management, output, also)

        self._add(app, "delete", delete, about, lines)

    def _add(
        self,
        app: typer.Typer,
        verb: str,
        command: Callable[..., None],
        about: str,
        lines: Collection[str],
    ) -> None:
        """The command, with this resource's arguments in the place of its `names`."""
        *options, _ = inspect.signature(command).parameters.values()
        own = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind)
            for name, kind in self.arguments.items()
        ]
        keywords = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in options]
        signature = inspect.Signature([*own, *keywords])
        command.__dict__["__signature__"] = signature
        command.__annotations__ = {
            name: each.annotation for name, each in signature.parameters.items()
        }
        app.command(verb, cls=PlainCommand, help=about, epilog=examples(*lines))(command)


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
