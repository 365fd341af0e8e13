"""`hermes subscription health`: whether a subscription is healthy, for people and for scripts."""

from typing import Any

import typer

from hermes_actors.cli.administration.arguments import SubscriptionArgument, TopicArgument
from hermes_actors.cli.administration.resource import subscription_path
from hermes_actors.cli.command_line.failures import CommandFailed
from hermes_actors.cli.command_line.options import Output, OutputOption
from hermes_actors.cli.command_line.plain import PlainGroup
from hermes_actors.cli.connection.asking import management_command
from hermes_actors.cli.connection.management import ManagementClient
from hermes_actors.cli.output.render import (
    fields_of,
    parsed_object,
    printable,
    say,
    say_wrapped,
    show_answer,
)

app = typer.Typer(cls=PlainGroup, rich_markup_mode="rich")

_CODES = {"HEALTHY": 0, "UNHEALTHY": 1}
_CANNOT_TELL = 2


@management_command(
    app,
    "hermes subscription health shop.orders billing",
    "hermes subscription health shop.orders billing || page me",
)
def health(
    client: ManagementClient,
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    output: OutputOption = Output.TABLE,
) -> None:
    """Say whether a subscription is healthy: exit code 0 yes, 1 no, 2 cannot tell.

    'hermes subscription list --unhealthy' shows all that are not.
    """
    try:
        content = client.get(f"{subscription_path(topic, subscription)}/health")
    except CommandFailed as failure:
        failure.exit_code = _CANNOT_TELL
        raise
    show_answer(content, output, _show)
    raise typer.Exit(_CODES.get(str(parsed_object(content).get("status")), _CANNOT_TELL))


def _show(found: dict[str, Any]) -> None:
    say(printable(str(found.get("status"))))
    for problem in fields_of(found, "problems"):
        say_wrapped(printable(f"{problem.get('code')}: {problem.get('description')}"))
