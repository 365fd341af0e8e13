"""The options that several commands share."""

import sys
from collections.abc import Callable
from contextvars import ContextVar
from enum import StrEnum
from typing import Annotated, Any

import typer

from hermes_actors.cli.command_line.failures import UsageWrong

MANAGEMENT_URL_DEFAULT = "http://127.0.0.1:8090"
MANAGEMENT_URL_VARIABLE = "HERMES_MANAGEMENT_URL"
PUBLISH_URL_DEFAULT = "http://127.0.0.1:8080"


class Output(StrEnum):
    """The form of the results: for people, or for programs."""

    TABLE = "table"
    JSON = "json"


class Sort(StrEnum):
    """The columns by which rows can be sorted; worst first, except for names."""

    NAME = "name"
    STATE = "state"
    LAG = "lag"
    RATE = "rate"
    INFLIGHT = "inflight"


OutputOption = Annotated[
    Output,
    typer.Option("--output", "-o", help="Output format: json is for programs."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="The same as --output json.")]
PublishUrlOption = Annotated[
    str,
    typer.Option(
        "--publish-url",
        metavar="URL",
        envvar="HERMES_PUBLISH_URL",
        help="The publish API, or a load balancer.",
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
FromFileOption = Annotated[
    str | None,
    typer.Option("--from-file", metavar="FILE", help="A JSON object; '-' reads stdin."),
]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Log discarded messages too, with the reason.")
]
ReadyJsonOption = Annotated[
    bool, typer.Option("--json", help="When ready, print one JSON line with all URLs.")
]
AcceptDamageOption = Annotated[
    bool,
    typer.Option(
        "--accept-damage",
        help="Start even if acknowledged messages are missing or damaged. Use it once, after an "
        "error that says how many.",
    ),
]
PatchArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE",
        help="Dotted keys, JSON values (text needs no quotes); null unsets.",
    ),
]

_given: ContextVar[tuple[Any, dict[str, Any]]] = ContextVar("added options", default=(None, {}))
"""The context of a command line, and the values of its added options."""


def added_options(described: Callable[..., None], panel: str) -> list[Any]:
    """Return the options of a function, for a command class to add; `given` has their values. The
    help shows them in this panel.
    """
    app = typer.Typer(add_completion=False)
    app.command()(described)
    params: list[Any] = list(typer.main.get_command(app).params)
    for param in params:
        param.rich_help_panel = panel
        param.expose_value = False
        param.callback = _keep
    return params


def _keep(context: Any, param: Any, value: Any) -> Any:
    of, values = _given.get()
    _given.set((context, {**(values if of is context else {}), param.name: value}))
    return value


def given(name: str) -> Any:
    """Return the value of an added option on this command line; None if it has none."""
    return _given.get()[1].get(name)


def wants_json() -> bool:
    """True if the output is JSON."""
    return given("output") is Output.JSON or bool(given("json"))


def examples(*lines: str) -> str:
    """Return the last paragraph of the help: command lines to copy."""
    return "\n".join(["Examples:", *(f"  {line}" for line in lines)])


def confirm(what: str, yes: bool, verb: str = "delete") -> None:
    """Ask for confirmation unless `yes`. Raises typer.Abort; UsageWrong if it cannot ask."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageWrong(f"to {verb} {what}, give --yes: there is no terminal to confirm on")
    typer.confirm(f"{verb.capitalize()} {what}?", abort=True, err=True)
