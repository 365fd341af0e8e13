"""Commands that are imported when they run, not when `hermes --help` lists them."""

from functools import cache, cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer
from typer.core import TyperCommand

from hermes_actors.cli.command_line.failures import CommandFailed

PLUGIN_GROUP = "hermes.commands"
_COMPLETION = ("install_completion", "show_completion")


class LazyCommand(TyperCommand):
    """A command that is imported from `module:attribute` when it is used. Until then it has only a
    name and a line of help.

    The attribute is a Typer app or a function with Typer annotations.
    """

    def __init__(self, name: str, target: str, short_help: str = "") -> None:
        super().__init__(name, short_help=short_help)
        self._entry_point = EntryPoint(name, target, PLUGIN_GROUP)

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Return the context of the real command, which typer then invokes."""
        return self.real.make_context(info_name, args, parent, **extra)

    @cached_property
    def real(self) -> Any:
        """The real command. Raises CommandFailed if it cannot be imported."""
        try:
            return _as_command(self._entry_point.load(), self.name)
        except Exception as error:
            # Importing a foreign module can raise any exception.
            raise CommandFailed(
                f"the command '{self.name}' ({self._entry_point.value}) cannot be loaded: "
                f"{type(error).__name__}: {error}; fix or uninstall the package it comes from"
            ) from error

    def find_help(self) -> None:
        """Use the real command's line of help if there is none."""
        if self.short_help:
            return
        try:
            text = self.real.short_help or self.real.help or self._entry_point.value
            self.short_help = text.strip().partition("\n")[0]
        except CommandFailed as failure:
            self.short_help = failure.message


def _as_command(found: Any, name: str | None) -> Any:
    if isinstance(found, typer.Typer):
        app = found
    else:
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        app.command(name)(found)
    command = typer.main.get_command(app)
    # The completion options belong to the root command only.
    command.params = [each for each in command.params if each.name not in _COMPLETION]
    command.name = name
    return command


@cache
def installed_plugins() -> list[EntryPoint]:
    """Return the entry points of the group `hermes.commands`, sorted by name."""
    return sorted(entry_points(group=PLUGIN_GROUP), key=lambda each: each.name)
