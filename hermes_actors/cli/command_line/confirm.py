"""Asks before what cannot be undone or concerns much; without a terminal, `--yes` is needed."""

import sys

import typer

from hermes_actors.cli.command_line.failures import UsageWrong


def confirm(what: str, yes: bool, verb: str = "delete") -> None:
    """Return if it is wanted. Raises UsageWrong, or typer.Abort for a no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageWrong(f"to {verb} {what}, give --yes: there is no terminal to ask on")
    typer.confirm(f"{verb.capitalize()} {what}?", abort=True, err=True)
