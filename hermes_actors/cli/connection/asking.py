"""Commands that call management: all have the same options, and `management()` is their client."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Annotated, Any

import typer

from hermes_actors.cli.command_line.credentials import credential_options
from hermes_actors.cli.command_line.options import (
    MANAGEMENT_URL_DEFAULT,
    MANAGEMENT_URL_VARIABLE,
    JsonOption,
    Output,
    OutputOption,
    added_options,
    examples,
    given,
)
from hermes_actors.cli.command_line.plain import PlainCommand
from hermes_actors.cli.connection.management import ManagementClient

_READING = {"lag", "list", "pull", "show", "status", "tail", "top", "trace", "why"}
"""Commands that change nothing, so they have no reason of a change."""

_client: ContextVar[ManagementClient] = ContextVar("the client of the command that runs")


def _options(
    management: Annotated[
        str,
        typer.Option(
            "--management",
            metavar="URL",
            envvar=MANAGEMENT_URL_VARIABLE,
            help="The management API.",
        ),
    ] = MANAGEMENT_URL_DEFAULT,
    output: OutputOption = Output.TABLE,
    json: JsonOption = False,
    change_reason: Annotated[
        str | None,
        typer.Option(
            "--reason",
            "--change-reason",
            metavar="TEXT",
            envvar="HERMES_CHANGE_REASON",
            help="Reason of the change, for the audit log.",
        ),
    ] = None,
) -> None: ...


class ManagementCommand(PlainCommand):
    """A command that runs with a client of the management API."""

    def __init__(self, *args: Any, **attrs: Any) -> None:
        super().__init__(*args, **attrs)
        own = {name for param in self.params for name in param.opts}
        options = [*added_options(_options, "Connection and output"), *credential_options()]
        if self.name in _READING:
            options = [each for each in options if each.name != "change_reason"]
        for option in options:
            # Some commands have a `--reason` with another meaning.
            option.opts = [name for name in option.opts if name not in own]
            self.params.append(option)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with ManagementClient(given("management")) as client:
            _client.set(client)
            return super().invoke(ctx)


def management() -> ManagementClient:
    """Return the client of the running command."""
    return _client.get()


def management_command(
    app: typer.Typer, *lines: str, name: str | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add a function to `app` as a command that calls management; `lines` are its examples."""
    return app.command(name, cls=ManagementCommand, epilog=examples(*lines))
