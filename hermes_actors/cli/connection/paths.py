"""The management API's routes that several commands ask for."""

from hermes_actors.cli.connection.management import quoted


def subscription_path(topic: str, subscription: str | None = None) -> str:
    """The route of a topic's subscriptions, or of one of them. Raises UsageWrong."""
    path = f"/topics/{quoted(topic)}/subscriptions"
    return path if subscription is None else f"{path}/{quoted(subscription)}"
