"""Asks before something is deleted; without a terminal to ask on, `--yes` is needed."""

import sys

import typer

from hermes_actors.cli.failures import UsageWrong


def confirm_deletion(what: str, yes: bool) -> None:
    """Return if the deletion is wanted. Raises UsageWrong, or typer.Abort for a no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageWrong(f"deleting {what} needs --yes: there is no terminal to ask on")
    typer.confirm(f"Delete {what}?", abort=True, err=True)
