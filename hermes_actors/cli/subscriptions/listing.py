"""`hermes subscription list`: how all of them fare, so that the sick one is found."""

from functools import partial
from typing import Annotated, Any

import typer

from hermes_actors.cli.administration.arguments import completed
from hermes_actors.cli.administration.resource import subscription_path
from hermes_actors.cli.command_line.failures import UsageWrong
from hermes_actors.cli.command_line.options import Output, OutputOption, Sort
from hermes_actors.cli.connection.management import ManagementClient
from hermes_actors.cli.output.render import (
    fields_of,
    known,
    say_unknown,
    show_answer,
    show_names,
    show_rows,
)
from hermes_actors.cli.output.watching import WatchOption, watched

_COLUMNS = ("Subscription", "State", "Level", "Deliv./s", "Lag", "Dead", "Reason")


def list_subscriptions(
    client: ManagementClient,
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
    output: OutputOption = Output.TABLE,
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
        params = {"tracked": "true"} if tracked else None
        show_names(client.get(subscription_path(topic), params), "Subscription", output)
        return
    asked = {"topicName": topic, "sort": None if sort is None else sort.value}
    params = {name: value for name, value in asked.items() if value is not None}
    if unhealthy:
        params["unhealthy"] = "true"
    nothing = "no subscription has a problem" if unhealthy else "no subscriptions"

    def show() -> None:
        content = client.get("/status/subscriptions", params or None)
        show_answer(content, output, partial(_show_fares, nothing))

    watched(show, watch)


def _show_fares(nothing: str, found: dict[str, Any]) -> None:
    rows = [_row(each) for each in fields_of(found, "subscriptions")]
    show_rows(_COLUMNS, rows, nothing, optional=("Level", "Deliv./s"), has_sentences=True)
    say_unknown(found)


def _row(found: dict[str, Any]) -> list[str]:
    return [
        f"{found.get('topicName')} {found.get('name')}",
        str(found.get("condition", "")),
        str(found.get("rateLevel") or "-"),
        _at_least(f"{found.get('rate', 0):.1f}", found),
        known(found.get("lag")),
        _at_least(known(found.get("openDeadLetters")), found),
        "; ".join(str(each.get("description")) for each in fields_of(found, "problems"))
        or str(found.get("reason", "")),
    ]


def _at_least(figure: str, found: dict[str, Any]) -> str:
    """The figure; where not all datacentres tell of it with a `+`, or `?` for none."""
    if found.get("isKnown", True) or figure == "?":
        return figure
    return f"{figure}+" if float(figure) else "?"
