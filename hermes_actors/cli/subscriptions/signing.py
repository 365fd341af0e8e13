"""`hermes subscription rotate-secret|retire-secrets`: the secrets that sign requests."""

import typer

from hermes_actors.cli.administration.arguments import SubscriptionArgument, TopicArgument
from hermes_actors.cli.administration.resource import show_changed, subscription_path
from hermes_actors.cli.connection.asking import management, management_command
from hermes_actors.cli.output.render import Fields, counted, say, show_answer

app = typer.Typer()


@management_command(app, "hermes subscription rotate-secret shop.orders billing")
def rotate_secret(topic: TopicArgument, subscription: SubscriptionArgument) -> None:
    """Also sign with a new secret, and print it: it cannot be shown again.

    Requests are also signed with the old secrets until retire-secrets.
    """
    path = f"{subscription_path(topic, subscription)}/signing/rotate"
    show_answer(management().post(path, {}), _show_secret)


def _show_secret(found: Fields) -> None:
    say(str(found.get("secret", "")))
    if older := found.get("olderSecrets"):
        say(
            f"also signing with {counted(older, 'older secret')} until "
            "'hermes subscription retire-secrets'"
        )


@management_command(app, "hermes subscription retire-secrets shop.orders billing")
def retire_secrets(topic: TopicArgument, subscription: SubscriptionArgument) -> None:
    """Sign with the newest secret only, once all subscribers have it."""
    path = subscription_path(topic, subscription)
    answer = management().post(f"{path}/signing/retire", {})
    show_changed(
        path, answer, f"subscription {subscription} of {topic}: signs with its newest secret only"
    )
