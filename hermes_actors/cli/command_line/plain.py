"""Help in the usual form of command lines: flags without a value, names without braces."""

from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from hermes_actors.cli.command_line.credentials import credential_options


def _without_flag_values(params: list[Any]) -> list[Any]:
    for param in params:
        if isinstance(param, TyperOption) and param.is_flag and param.metavar is None:
            param.metavar = ""
    return params


class PlainCommand(TyperCommand):
    """A command whose help shows no `<bool>` for a flag, and TOPIC, not {TOPIC}.

    A command that publishes also takes credentials.
    """

    def __init__(self, *args: Any, **attrs: Any) -> None:
        super().__init__(*args, **attrs)
        if any(param.name == "publish_url" for param in self.params):
            self.params += credential_options()

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, including `--help`."""
        return _without_flag_values(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line."""
        return [
            piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)
        ]


class PlainGroup(TyperGroup):
    """A group of commands whose help shows no `<bool>` for a flag."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, including `--help`."""
        return _without_flag_values(super().get_params(ctx))


def command_group(help_: str) -> typer.Typer:
    """Make a group of commands, such as `hermes topic`."""
    return typer.Typer(
        cls=PlainGroup,
        no_args_is_help=True,
        help=help_,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
