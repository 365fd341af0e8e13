"""`hermes subscription list|health|why`: the state of subscriptions, and causes of delays."""

from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer

from hermes_actors.cli.administration.arguments import (
    AnyTopicArgument,
    SubscriptionArgument,
    TopicArgument,
)
from hermes_actors.cli.administration.resource import subscription_path
from hermes_actors.cli.command_line.failures import CommandFailed, UsageWrong
from hermes_actors.cli.command_line.options import Sort
from hermes_actors.cli.connection.asking import management, management_command
from hermes_actors.cli.dlq import say_letters
from hermes_actors.cli.output.render import (
    Columns,
    Fields,
    fields_of,
    full_name,
    parsed_object,
    say,
    say_unknown,
    show_answer,
    show_names,
    show_table,
)
from hermes_actors.cli.output.watching import WatchOption, watched
from hermes_actors.model.moments import iso_ms, span

app = typer.Typer()


@management_command(
    app,
    "hermes subscription list",
    "hermes subscription list --unhealthy",
    "hermes subscription list shop.orders --sort lag",
    name="list",
)
def list_subscriptions(
    topic: AnyTopicArgument = None,
    unhealthy: Annotated[
        bool, typer.Option("--unhealthy", help="Only those with problems.")
    ] = False,
    sort: Annotated[
        Sort | None, typer.Option("--sort", help="The worst first.", show_default="name")
    ] = None,
    tracked: Annotated[
        bool, typer.Option("--tracked", help="Names of TOPIC's subscriptions with tracking.")
    ] = False,
    watch: WatchOption = False,
) -> None:
    """List the state of all subscriptions, or the names of one topic's.

    With --unhealthy or --sort, the state of that topic's subscriptions.
    """
    fares = topic is None or unhealthy or sort is not None
    if watch and not fares:
        raise UsageWrong("--watch shows states, not names: leave out TOPIC, or add --sort name")
    if tracked and fares:
        raise UsageWrong("--tracked lists names: give TOPIC, and neither --unhealthy nor --sort")
    if topic is not None and not fares:
        only = {"tracked": "true"} if tracked else None
        show_names(management().get(subscription_path(topic), only), "Subscription")
        return
    given = {"topicName": topic, "sort": sort, "unhealthy": "true" if unhealthy else None}
    params = {name: str(value) for name, value in given.items() if value is not None}
    nothing = "no subscription has a problem" if unhealthy else "no subscriptions"

    def show(found: Fields) -> None:
        show_table(_COLUMNS, fields_of(found, "subscriptions"), nothing)
        say_unknown(found)

    watched(
        lambda: show_answer(management().get("/status/subscriptions", params or None), show), watch
    )


def _at_least(name: str) -> Callable[[Fields], object]:
    """Return a column's function: the figure, with `+` if some datacentres are unknown, or `?` if
    all are.
    """

    def cell(found: Fields) -> object:
        figure = found.get(name, 0)
        if found.get("isKnown", True) or figure < 0:
            return figure
        return f"{figure:.4g}+" if figure else "?"

    return cell


def _oldest(found: Fields) -> object:
    """Return the age of the oldest undelivered message; nothing if there is none."""
    age_ms = found.get("oldestAgeMs", 0)
    return span(age_ms / 1_000) if age_ms else None


def _reason(found: Fields) -> object:
    problems = "; ".join(str(each.get("description")) for each in fields_of(found, "problems"))
    return problems or found.get("reason")


_COLUMNS: Columns = {
    "Subscription": full_name,
    "State": "condition",
    "Level": "rateLevel",
    "Deliv./s": _at_least("rate"),
    "Lag": "lag",
    "Oldest": _oldest,
    "Dead": _at_least("openDeadLetters"),
    "Reason": _reason,
}


_CODES = {"HEALTHY": 0, "UNHEALTHY": 1}
_CANNOT_TELL = 2


@management_command(
    app,
    "hermes subscription health shop.orders billing",
    "hermes subscription health shop.orders billing || page me",
)
def health(topic: TopicArgument, subscription: SubscriptionArgument) -> None:
    """Check whether a subscription is healthy: exit code 0 yes, 1 no, 2 unknown.

    'hermes subscription list --unhealthy' lists all that are not.
    """
    try:
        content = management().get(f"{subscription_path(topic, subscription)}/health")
    except CommandFailed as failure:
        failure.exit_code = _CANNOT_TELL
        raise
    show_answer(content, _show_health)
    raise typer.Exit(_CODES.get(str(parsed_object(content).get("status")), _CANNOT_TELL))


def _show_health(found: Fields) -> None:
    say(str(found.get("status")))
    for problem in fields_of(found, "problems"):
        say(f"{problem.get('code')}: {problem.get('description')}")


_WHY_COLUMNS: Columns = {
    "DC": "datacenter",
    "Node": "node",
    "State": "state",
    "Deliv./s": "rate",
    "Lag": "lag",
    "Oldest": _oldest,
    "Reason": "reason",
}


@management_command(app, "hermes subscription why shop.orders billing")
def why(
    topic: TopicArgument, subscription: SubscriptionArgument, watch: WatchOption = False
) -> None:
    """Show what delays a subscription, for each datacentre and node."""
    path = f"{subscription_path(topic, subscription)}/why"
    show = partial(_show_why, topic, subscription)
    watched(lambda: show_answer(management().get(path), show), watch)


def _show_why(topic: str, subscription: str, found: Fields) -> None:
    since = ""
    if "suspendedAt" in found:
        at = iso_ms(int(1_000 * found["suspendedAt"]), "seconds")
        since = f" since {at} by {found['suspendedBy']}"
    say(f"subscription {subscription} of {topic} is {found.get('state')}{since}")
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
    show_table(_WHY_COLUMNS, rows, "this node does not follow the status of any node")
    for line in lines:
        say(line)
    say_letters(topic, subscription, found)
