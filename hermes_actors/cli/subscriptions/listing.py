"""`hermes subscription list`: how all of them fare, so that the sick one is found."""

from collections.abc import Callable
from typing import Annotated

import typer

from hermes_actors.cli.administration.arguments import completed
from hermes_actors.cli.administration.resource import subscription_path
from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_actors.cli.command_line.options import Sort
from hermes_actors.cli.connection.asking import management, management_command
from hermes_actors.cli.output.render import (
    Columns,
    Fields,
    fields_of,
    full_name,
    say_unknown,
    show_answer,
    show_names,
    show_table,
)
from hermes_actors.cli.output.watching import WatchOption, watched

app = typer.Typer()


@management_command(
    app,
    "hermes subscription list",
    "hermes subscription list --unhealthy",
    "hermes subscription list shop.orders --sort lag",
    name="list",
)
def list_subscriptions(
    topic: Annotated[
        str | None,
        typer.Argument(
            metavar="[TOPIC]",
            help="Of this topic; else of all.",
            autocompletion=completed("topic"),
        ),
    ] = None,
    unhealthy: Annotated[
        bool, typer.Option("--unhealthy", help="Only those with problems.")
    ] = False,
    sort: Annotated[
        Sort | None, typer.Option("--sort", help="The worst first.", show_default="name")
    ] = None,
    tracked: Annotated[
        bool, typer.Option("--tracked", help="Names of those of TOPIC with tracking.")
    ] = False,
    watch: WatchOption = False,
) -> None:
    """List how all subscriptions fare, or the names of one topic's.

    With --unhealthy or --sort, how that topic's fare.
    """
    fares = topic is None or unhealthy or sort is not None
    if watch and not fares:
        raise UsageWrong("--watch shows how they fare: leave out TOPIC, or add --sort name")
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
    """The figure; where not all datacentres tell of it with a `+`, or `?` for none."""

    def cell(found: Fields) -> object:
        figure = found.get(name, 0)
        if found.get("isKnown", True) or figure < 0:
            return figure
        return f"{figure:.4g}+" if figure else "?"

    return cell


def _reason(found: Fields) -> object:
    problems = "; ".join(str(each.get("description")) for each in fields_of(found, "problems"))
    return problems or found.get("reason")


_COLUMNS: Columns = {
    "Subscription": full_name,
    "State": "condition",
    "Level": "rateLevel",
    "Deliv./s": _at_least("rate"),
    "Lag": "lag",
    "Dead": _at_least("openDeadLetters"),
    "Reason": _reason,
}
