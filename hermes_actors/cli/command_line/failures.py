"""Failures that end a command: one line that says what, why and the way out, and an exit code.

0    done
1    the server said no, or could not be reached, or not everything was accepted
2    the command line is wrong
130  interrupted by Ctrl-C
"""

import sys

import typer

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class CommandFailed(typer.TyperException):
    """The command could not do what it was asked; shown as one line, exit code 1."""

    exit_code = EXIT_FAILED


class UsageWrong(CommandFailed):
    """The command line cannot be carried out as it stands; shown as one line, exit code 2."""

    exit_code = EXIT_USAGE


def warn(text: str) -> None:
    """One line on stderr about what was done, but perhaps not as it was meant."""
    print(f"hermes: warning: {text}", file=sys.stderr)


def first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error in a group, which trio makes of what ends a nursery."""
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
