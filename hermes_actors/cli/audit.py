"""`hermes audit`: who changed what, when, from where and why."""

from textwrap import shorten
from typing import Annotated

import typer

from hermes_actors.cli.command_line.bodies import TIME_HELP, optional_time
from hermes_actors.cli.command_line.failures import warn
from hermes_actors.cli.connection.asking import management, management_command
from hermes_actors.cli.output.render import (
    Columns,
    Fields,
    fields_of,
    flattened,
    printable,
    show_answer,
    show_table,
)

app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich")


@management_command(
    app,
    "hermes audit",
    "hermes audit topics/shop.orders --since 2d",
    "hermes audit topics/shop.orders/subscriptions/billing --by ada -o json",
)
def audit(
    resource: Annotated[
        str | None,
        typer.Argument(metavar="RESOURCE", help="An API path; includes everything below it."),
    ] = None,
    by: Annotated[
        str | None, typer.Option(metavar="ACCOUNT", help="Changes by this account.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help=f"Made at or after: {TIME_HELP}.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Made before this time.")
    ] = None,
    before: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Older than this change; a note below the table gives its id."
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Maximum number.")] = 50,
) -> None:
    """List changes of groups, topics, subscriptions and other settings, newest first."""
    given = {
        "resource": resource,
        "by": by,
        "since": optional_time("--since", since),
        "until": optional_time("--until", until),
        "before": before,
        "limit": str(limit),
    }
    params = {name: value for name, value in given.items() if value is not None}
    show_answer(management().get("/audit", params), _show)


def _show(found: Fields) -> None:
    columns: Columns = {
        "Time": lambda change: str(change.get("time"))[:19] + "Z",
        "By": "by",
        "Datacentre": "datacenter",
        "Action": _action,
        "Resource": "resource",
        "Reason": lambda change: change.get("reason") or None,
        "Fields": _fields,
    }
    show_table(columns, fields_of(found, "changes"), "no such changes")
    if not found.get("isComplete"):
        warn(f"not searched: changes before {found.get('searchedSince')}, which memory has not")
    if following := found.get("next"):
        warn(f"there are more: give a higher --limit, or --before {printable(str(following))}")


def _action(change: Fields) -> str:
    winner = change.get("overruledBy") or {}
    by = f" by {winner.get('by')} in {winner.get('datacenter')}" if winner else ""
    return f"{change.get('action')}{by}"


def _fields(change: Fields) -> list[str]:
    """The fields of a change, old → new; none of what was created or deleted as a whole."""
    old, new = change.get("before"), change.get("after")
    if not isinstance(old, dict) or not isinstance(new, dict):
        return []
    befores, afters = _leaves(old), _leaves(new)
    return [
        f"{name}: {befores.get(name, '-')} → {afters.get(name, '-')}" for name in befores | afters
    ]


def _leaves(fields: Fields) -> dict[str, str]:
    found = {name: value for name, value in flattened(fields) if value != "null"}
    return {name: shorten(value, 60, placeholder="…") or "''" for name, value in found.items()}
