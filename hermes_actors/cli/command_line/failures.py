"""Failures that end a command: one line with the failure, its cause and a remedy, and an exit code.

0    done
1    the server refused or could not be reached, or not everything was accepted
2    the command line is wrong
130  interrupted by Ctrl-C
"""

import sys

import typer

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class CommandFailed(typer.TyperException):
    """The command failed; shown as one line, exit code 1."""

    exit_code = EXIT_FAILED


class UsageWrong(CommandFailed):
    """The command line is wrong; shown as one line, exit code 2."""

    exit_code = EXIT_USAGE


def warn(text: str) -> None:
    """Print a warning on stderr: the command was done, but perhaps not as intended."""
    print(f"hermes: warning: {text}", file=sys.stderr)


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error in a group; trio wraps the errors of a nursery in groups."""
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
