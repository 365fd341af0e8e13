"""Commands that are imported when they run, not when `hermes --help` lists them."""

import importlib
from functools import cache, cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer
from typer.core import TyperCommand

from hermes_actors.cli.command_line.failures import CommandFailed, warn
from hermes_actors.cli.command_line.plain import PlainGroup

PLUGIN_GROUP = "hermes.commands"
_COMPLETION = ("install_completion", "show_completion")


class LazyCommand(TyperCommand):
    """A name and a line of help; the real command is imported from `module:attribute` when used.

    The attribute is a Typer app or a function with Typer annotations.
    """

    def __init__(self, name: str, target: str, short_help: str) -> None:
        super().__init__(name, short_help=short_help)
        self._target = target

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """The context of the real command, which typer then invokes."""
        return self.real.make_context(info_name, args, parent, **extra)

    @cached_property
    def real(self) -> Any:
        """The command itself. Raises CommandFailed where its module is not there."""
        module, _, attribute = self._target.partition(":")
        try:
            found = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            raise CommandFailed(
                f"the command '{self.name}' is not part of this installation: {error}"
            ) from error
        return as_command(found, self.name)


class PluginCommand(LazyCommand):
    """A command that another package brings in through an entry point."""

    def __init__(self, entry_point: EntryPoint) -> None:
        super().__init__(entry_point.name, entry_point.value, "")
        self._entry_point = entry_point
        self.is_broken = False

    @cached_property
    def real(self) -> Any:
        """The plug-in's command. Raises CommandFailed, whatever its import raised."""
        try:
            return as_command(self._entry_point.load(), self.name)
        except Exception as error:
            # A foreign module's import can raise anything.
            raise CommandFailed(
                f"the plug-in command '{self.name}' ({self._entry_point.value}) cannot be loaded: "
                f"{type(error).__name__}: {error}; mend or uninstall the package it comes from"
            ) from error

    def load_help(self) -> None:
        """Take the plug-in's own line of help; a broken one is a warning, not a failure."""
        if self.short_help or self.is_broken:
            return
        try:
            real = self.real
        except CommandFailed as failure:
            self.is_broken = True
            warn(failure.message)
        else:
            first_line = (real.short_help or real.help or "").strip().partition("\n")[0]
            self.short_help = first_line or f"Plug-in {self._entry_point.value}"


def as_command(found: Any, name: str | None) -> Any:
    """A command from a Typer app or from a function with Typer annotations."""
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


class PluginGroup(PlainGroup):
    """A group of commands that other packages add to through entry points."""

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        for entry_point in sorted(installed_plugins(), key=lambda each: each.name):
            # A built-in command cannot be replaced by a package that happens to be installed.
            if entry_point.name not in self.commands:
                self.add_command(PluginCommand(entry_point))

    def list_commands(self, ctx: Any) -> list[str]:
        """Built-in commands in their order, then the plug-ins that can be loaded."""
        names = []
        for name, command in self.commands.items():
            if isinstance(command, PluginCommand):
                command.load_help()
                if command.is_broken:
                    continue
            names.append(name)
        return names


@cache
def installed_plugins() -> list[EntryPoint]:
    """The entry points of the group `hermes.commands`."""
    return list(entry_points(group=PLUGIN_GROUP))
