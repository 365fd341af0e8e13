"""Asks before something is deleted; without a terminal to ask on, `--yes` is needed."""

import sys

import typer

from hermes_actors.cli.failures import UsageWrong


def confirm_deletion(what: str, yes: bool, verb: str = "delete") -> None:
    """Return if the deletion is wanted. Raises UsageWrong, or typer.Abort for a no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageWrong(f"to {verb} {what}, give --yes: there is no terminal to ask on")
    typer.confirm(f"{verb.capitalize()} {what}?", abort=True, err=True)
