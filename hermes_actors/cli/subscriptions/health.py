"""`hermes subscription health`: whether a subscription is healthy, for people and for scripts."""

import typer

from hermes_actors.cli.administration.arguments import SubscriptionArgument, TopicArgument
from hermes_actors.cli.administration.resource import subscription_path
from hermes_actors.cli.command_line.failures import CommandFailed
from hermes_actors.cli.connection.asking import management, management_command
from hermes_actors.cli.output.render import Fields, fields_of, parsed_object, say, show_answer

app = typer.Typer()

_CODES = {"HEALTHY": 0, "UNHEALTHY": 1}
_CANNOT_TELL = 2


@management_command(
    app,
    "hermes subscription health shop.orders billing",
    "hermes subscription health shop.orders billing || page me",
)
def health(topic: TopicArgument, subscription: SubscriptionArgument) -> None:
    """Say whether a subscription is healthy: exit code 0 yes, 1 no, 2 cannot tell.

    'hermes subscription list --unhealthy' shows all that are not.
    """
    try:
        content = management().get(f"{subscription_path(topic, subscription)}/health")
    except CommandFailed as failure:
        failure.exit_code = _CANNOT_TELL
        raise
    show_answer(content, _show)
    raise typer.Exit(_CODES.get(str(parsed_object(content).get("status")), _CANNOT_TELL))


def _show(found: Fields) -> None:
    say(str(found.get("status")))
    for problem in fields_of(found, "problems"):
        say(f"{problem.get('code')}: {problem.get('description')}")
