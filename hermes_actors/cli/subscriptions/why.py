"""`hermes subscription why`: what holds a subscription back, or that nothing does."""

from functools import partial

import typer

from hermes_actors.cli.administration.arguments import SubscriptionArgument, TopicArgument
from hermes_actors.cli.administration.resource import subscription_path
from hermes_actors.cli.connection.asking import management, management_command
from hermes_actors.cli.dlq.selection import say_letters
from hermes_actors.cli.output.render import Fields, fields_of, say, show_answer, show_table
from hermes_actors.cli.output.watching import WatchOption, watched

app = typer.Typer()

_COLUMNS = {
    "DC": "datacenter",
    "Node": "node",
    "State": "state",
    "Deliv./s": "rate",
    "Lag": "lag",
    "Reason": "reason",
}


@management_command(app, "hermes subscription why shop.orders billing")
def why(
    topic: TopicArgument, subscription: SubscriptionArgument, watch: WatchOption = False
) -> None:
    """Say for each datacentre and node what holds a subscription back, or that it is delivered."""
    path = f"{subscription_path(topic, subscription)}/why"
    show = partial(_show_why, topic, subscription)
    watched(lambda: show_answer(management().get(path), show), watch)


def _show_why(topic: str, subscription: str, found: Fields) -> None:
    say(f"subscription {subscription} of {topic} is {found.get('state')}")
    if found.get("state") == "SUSPENDED":
        by = f"{found['suspensionReason']}; " if found.get("suspensionReason") else ""
        say(f"{by}to deliver again: 'hermes subscription activate {topic} {subscription}'")
    rows: list[Fields] = []
    lines = []
    for dc in fields_of(found, "datacenters"):
        name, nodes = dc.get("datacenter"), fields_of(dc, "nodes")
        if not nodes or not dc.get("isKnown"):
            rows.append({"datacenter": name, "reason": dc.get("reason")})
        for node in nodes:
            rows.append({**node, "datacenter": name})
            if details := "; ".join(str(each.get("text")) for each in fields_of(node, "details")):
                lines.append(f"{name} {node.get('node')}: {details}")
    show_table(_COLUMNS, rows, "the node that was asked follows no node's status")
    for line in lines:
        say(line)
    say_letters(topic, subscription, found)
