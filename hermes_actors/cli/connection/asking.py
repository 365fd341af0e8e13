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
    OutputOption,
    examples,
)
from hermes_actors.cli.command_line.plain import PlainCommand
from hermes_actors.cli.connection.management import ManagementClient
from hermes_actors.cli.output.render import show_answer

_MANAGEMENT = inspect.Parameter(
    "management",
    inspect.Parameter.KEYWORD_ONLY,
    default=MANAGEMENT_URL_DEFAULT,
    annotation=ManagementOption,
)
_JSON = inspect.Parameter(
    "json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=JsonOption
)
_OUTPUT = inspect.Parameter(
    "output", inspect.Parameter.KEYWORD_ONLY, default=Output.TABLE, annotation=OutputOption
)


def management_command(
    app: typer.Typer,
    *lines: str,
    name: str | None = None,
    about: str | None = None,
    arguments: Mapping[str, Any] = MappingProxyType({}),
    options: Mapping[str, Any] = MappingProxyType({}),
    show: Callable[..., object] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add a command that is called with a client of management; `lines` are its examples.

    It has `--management` too, and `--json` beside `--output`. `about` is its help in the place of
    its docstring. It is given `arguments`, which come before its other ones, and `options`, which
    may be left out (None), by keywords. With `show` it returns the server's answer, which is
    written as `--output` says: as it is, or by `show`, which is given the object in it and those of
    the command's arguments that it has a parameter for.
    """

    def add(ask: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(ask)
        def run(management: str, *, json: bool = False, **given: Any) -> None:
            if json:
                given["output"] = Output.JSON
            output = given.pop("output") if show is not None else None
            with ManagementClient(management) as client:
                content = ask(client, **given)
            if show is not None and output is not None:
                named = {
                    name: given[name]
                    for name in inspect.signature(show).parameters
                    if name in given
                }
                show_answer(content, output, functools.partial(show, **named))

        _, *own = inspect.signature(ask).parameters.values()
        parameters = [
            inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY, annotation=kind)
            for each, kind in arguments.items()
        ]
        left_out = [
            inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for each, kind in options.items()
        ]
        for each in (*own, *([_OUTPUT] if show is not None else ())):
            if each.name == "output":
                parameters += [*left_out, _MANAGEMENT, each, _JSON]
            elif each.name not in arguments and each.kind is not inspect.Parameter.VAR_KEYWORD:
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
