"""`hermes balancer constraints|constrain`: how many nodes consume a topic or a subscription."""

from typing import Annotated, Any

import typer

from hermes_actors.cli.administration.arguments import Named, TopicArgument, completed
from hermes_actors.cli.administration.resource import subscription_path
from hermes_actors.cli.command_line.failures import UsageWrong, warn
from hermes_actors.cli.command_line.options import Output, OutputOption
from hermes_actors.cli.command_line.plain import PlainGroup
from hermes_actors.cli.connection.asking import management_command
from hermes_actors.cli.connection.management import ManagementClient, Refusal, quoted
from hermes_actors.cli.output.render import (
    counted,
    printable,
    say,
    show_answer,
    show_rows,
)

app = typer.Typer(cls=PlainGroup, rich_markup_mode="rich")

_PATH = "/workload-constraints"


@management_command(app, "hermes balancer constraints --json")
def constraints(
    client: ManagementClient,
    output: OutputOption = Output.TABLE,
) -> None:
    """List how many nodes are to consume topics and subscriptions, where that was asked for."""
    content = client.get(_PATH)
    show_answer(content, output, _show_constraints)


def _show_constraints(found: dict[str, Any]) -> None:
    rows = [
        [name, str(each.get("consumersNumber", "")), str(each.get("reason", ""))]
        for kind in ("topicConstraints", "subscriptionConstraints")
        for name, each in (found.get(kind) or {}).items()
    ]
    columns = ("Topic or subscription", "Nodes", "Reason")
    show_rows(columns, rows, "nothing is constrained", has_sentences=True)


@management_command(
    app,
    "hermes balancer constrain shop.orders billing --nodes 1 --reason 'takes one connection'",
    "hermes balancer constrain shop.orders --nodes 4",
    "hermes balancer constrain shop.orders --remove",
)
def constrain(
    client: ManagementClient,
    topic: TopicArgument,
    subscription: Annotated[
        str,
        typer.Argument(
            metavar="SUBSCRIPTION",
            help="By default all of the topic.",
            autocompletion=completed(Named.SUBSCRIPTION),
        ),
    ] = "",
    nodes: Annotated[
        int | None,
        typer.Option("--nodes", metavar="N", min=1, help="How many nodes are to consume it."),
    ] = None,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why, for whoever looks.")
    ] = "",
    remove: Annotated[bool, typer.Option("--remove", help="Take the constraint away.")] = False,
) -> None:
    """Say how many nodes are to consume a subscription, or each one of a topic.

    There are never more of them than nodes, and than partitions of the topic.
    """
    if remove == (nodes is not None):
        raise UsageWrong("give --nodes N, or --remove to take the constraint away")
    name = f"{topic}${subscription}" if subscription else topic
    if nodes is None:
        end = f"subscription/{quoted(topic)}/{quoted(subscription)}" if subscription else ""
        client.delete(f"{_PATH}/{end or f'topic/{quoted(topic)}'}")
        say(printable(f"{name}: is not constrained"))
        return
    kind = "subscription" if subscription else "topic"
    wanted = {"consumersNumber": nodes, **({"reason": reason} if reason else {})}
    client.put(f"{_PATH}/{kind}", {f"{kind}Name": name, "constraints": wanted})
    say(printable(f"{name}: is to be consumed by {counted(nodes, 'node')}"))
    _warn_where_missing(client, topic, subscription)


def _warn_where_missing(client: ManagementClient, topic: str, subscription: str) -> None:
    """A constraint may come before what it is for; more often its name is misspelt."""
    path = subscription_path(topic, subscription) if subscription else f"/topics/{quoted(topic)}"
    try:
        client.get(path)
    except Refusal as refusal:
        if refusal.code in ("TOPIC_NOT_EXISTS", "GROUP_NOT_EXISTS", "SUBSCRIPTION_NOT_EXISTS"):
            warn(f"{printable(subscription or topic)} does not exist yet")
