"""The options that several commands share, so that they read alike everywhere."""

import sys
from enum import StrEnum
from typing import Annotated

import typer

from hermes_actors.cli.command_line.failures import UsageWrong

MANAGEMENT_URL_DEFAULT = "http://127.0.0.1:8090"
MANAGEMENT_URL_VARIABLE = "HERMES_MANAGEMENT_URL"
PUBLISH_URL_DEFAULT = "http://127.0.0.1:8080"


class Output(StrEnum):
    """How results are written: for people, or for programs."""

    TABLE = "table"
    JSON = "json"


class Sort(StrEnum):
    """The columns that rows are sorted by; all but names the worst first."""

    NAME = "name"
    STATE = "state"
    LAG = "lag"
    RATE = "rate"
    INFLIGHT = "inflight"


OutputOption = Annotated[
    Output,
    typer.Option("--output", "-o", help="For people (table) or for programs (json)."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="The same as --output json.")]
ManagementOption = Annotated[
    str,
    typer.Option(
        "--management",
        metavar="URL",
        envvar=MANAGEMENT_URL_VARIABLE,
        help="The management API.",
    ),
]
PublishUrlOption = Annotated[
    str,
    typer.Option(
        "--publish-url",
        metavar="URL",
        envvar="HERMES_PUBLISH_URL",
        help="A node's publishing side, or a balancer.",
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
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
        help="Start although acknowledged messages are missing or damaged: once, after an error "
        "that says how many.",
    ),
]
PatchArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE",
        help="Dotted keys, JSON values (text needs no quotes); null unsets.",
    ),
]


def examples(*lines: str) -> str:
    """Help's last paragraph: command lines to copy."""
    return "\n".join(["Examples:", *(f"  {line}" for line in lines)])


def confirm(what: str, yes: bool, verb: str = "delete") -> None:
    """Return if it is wanted. Raises UsageWrong, or typer.Abort for a no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageWrong(f"to {verb} {what}, give --yes: there is no terminal to ask on")
    typer.confirm(f"{verb.capitalize()} {what}?", abort=True, err=True)
