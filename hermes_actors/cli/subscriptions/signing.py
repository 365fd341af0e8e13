"""`hermes subscription rotate-secret|retire-secrets`: what requests are signed with."""

from typing import Any

import typer

from hermes_actors.cli.administration.resource import subscription_path
from hermes_actors.cli.command_line.options import (
    MANAGEMENT_URL_DEFAULT,
    ManagementOption,
    Output,
    OutputOption,
    SubscriptionArgument,
    TopicArgument,
    examples,
)
from hermes_actors.cli.command_line.plain import PlainCommand, PlainGroup
from hermes_actors.cli.connection.management import ManagementClient
from hermes_actors.cli.output.outcome import show_changed
from hermes_actors.cli.output.render import printable, say, show_answer

app = typer.Typer(cls=PlainGroup, rich_markup_mode="rich")


@app.command(
    "rotate-secret",
    cls=PlainCommand,
    epilog=examples("hermes subscription rotate-secret shop.orders billing"),
)
def rotate_secret(
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    management: ManagementOption = MANAGEMENT_URL_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Sign with a new secret too, and print it: nobody can show it again.

    The old ones go on signing until retire-secrets.
    """
    with ManagementClient(management) as client:
        content = client.post(f"{subscription_path(topic, subscription)}/signing/rotate", {})
    show_answer(content, output, _show_secret)


def _show_secret(found: dict[str, Any]) -> None:
    say(printable(str(found.get("secret", ""))))
    if older := found.get("olderSecrets"):
        say(printable(f"signing with {older} older too, until hermes subscription retire-secrets"))


@app.command(
    "retire-secrets",
    cls=PlainCommand,
    epilog=examples("hermes subscription retire-secrets shop.orders billing"),
)
def retire_secrets(
    topic: TopicArgument,
    subscription: SubscriptionArgument,
    management: ManagementOption = MANAGEMENT_URL_DEFAULT,
    output: OutputOption = Output.TABLE,
) -> None:
    """Sign with the newest secret only: every subscriber has it."""
    path = subscription_path(topic, subscription)
    with ManagementClient(management) as client:
        answer = client.post(f"{path}/signing/retire", {})
        line = f"subscription {subscription} of {topic}: signs with its newest secret only"
        show_changed(client, path, answer, line, output)
