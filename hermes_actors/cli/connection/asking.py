"""Commands that ask management: each gets a client, and the options that all of them have."""

import functools
import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import typer

from hermes_actors.cli.command_line.options import (
    MANAGEMENT_URL_DEFAULT,
    JsonOption,
    ManagementOption,
    Output,
    examples,
)
from hermes_actors.cli.command_line.plain import PlainCommand
from hermes_actors.cli.connection.management import ManagementClient

_MANAGEMENT = inspect.Parameter(
    "management",
    inspect.Parameter.KEYWORD_ONLY,
    default=MANAGEMENT_URL_DEFAULT,
    annotation=ManagementOption,
)
_JSON = inspect.Parameter(
    "json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=JsonOption
)


def management_command(
    app: typer.Typer,
    *lines: str,
    name: str | None = None,
    about: str | None = None,
    arguments: Mapping[str, Any] = MappingProxyType({}),
    options: Mapping[str, Any] = MappingProxyType({}),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add a command that is called with a client of management; `lines` are its examples.

    It has `--management` too, and `--json` beside `--output`. `about` is its help in the place of
    its docstring. It is given `arguments`, which come before its own ones, and `options`, which may
    be left out (None), by keywords.
    """

    def add(ask: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(ask)
        def run(management: str, *, json: bool = False, **given: Any) -> None:
            if json:
                given["output"] = Output.JSON
            with ManagementClient(management) as client:
                ask(client, **given)

        _, *own = inspect.signature(ask).parameters.values()
        parameters = [
            inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY, annotation=kind)
            for each, kind in arguments.items()
        ]
        left_out = [
            inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for each, kind in options.items()
        ]
        for each in own:
            if each.name == "output":
                parameters += [*left_out, _MANAGEMENT, each, _JSON]
            elif each.kind is not inspect.Parameter.VAR_KEYWORD:
                parameters.append(each)
        if _MANAGEMENT not in parameters:
            parameters.append(_MANAGEMENT)
        run.__dict__["__signature__"] = inspect.Signature(
            [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
        )
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        app.command(name, cls=PlainCommand, help=about, epilog=examples(*lines))(run)
        return ask

    return add
