"""`hermes subscription rotate-secret|retire-secrets`: what requests are signed with."""

from typing import Any

import typer

from hermes_actors.cli.administration.resource import SUBSCRIPTION, show_changed, subscription_path
from hermes_actors.cli.command_line.options import Output, OutputOption
from hermes_actors.cli.command_line.plain import PlainGroup
from hermes_actors.cli.connection.asking import management_command
from hermes_actors.cli.connection.management import ManagementClient
from hermes_actors.cli.output.render import printable, say

app = typer.Typer(cls=PlainGroup, rich_markup_mode="rich")


def _show_secret(found: dict[str, Any]) -> None:
    say(printable(str(found.get("secret", ""))))
    if older := found.get("olderSecrets"):
        say(printable(f"signing with {older} older too, until hermes subscription retire-secrets"))


@management_command(
    app,
    "hermes subscription rotate-secret shop.orders billing",
    name="rotate-secret",
    arguments=SUBSCRIPTION.arguments,
    show=_show_secret,
)
def rotate_secret(client: ManagementClient, topic: str, subscription: str) -> bytes:
    """Sign with a new secret too, and print it: nobody can show it again.

    The old ones go on signing until retire-secrets.
    """
    return client.post(f"{subscription_path(topic, subscription)}/signing/rotate", {})


@management_command(
    app,
    "hermes subscription retire-secrets shop.orders billing",
    name="retire-secrets",
    arguments=SUBSCRIPTION.arguments,
)
def retire_secrets(
    client: ManagementClient, topic: str, subscription: str, output: OutputOption = Output.TABLE
) -> None:
    """Sign with the newest secret only: every subscriber has it."""
    path = subscription_path(topic, subscription)
    answer = client.post(f"{path}/signing/retire", {})
    line = f"subscription {subscription} of {topic}: signs with its newest secret only"
    show_changed(client, path, answer, line, output)
