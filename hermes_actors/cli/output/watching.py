"""`--watch`: repeats a view; in place on a terminal, appended in a pipe."""

import sys
from collections.abc import Callable
from typing import Annotated

import trio
import typer

from hermes_actors.cli.command_line.failures import CommandFailed
from hermes_actors.model.moments import iso_ms
from hermes_actors.runtime.clock import SystemClock

INTERVAL_S = 2.0
_CLEAR = "\x1b[H\x1b[2J"

WatchOption = Annotated[
    bool,
    typer.Option("--watch", "-w", help=f"Repeat every {INTERVAL_S:g} s, until Ctrl-C."),
]


def _pause(pause_s: float) -> None:
    trio.run(trio.sleep, pause_s)


def watched(
    show: Callable[[], None], is_watched: bool, sleep: Callable[[float], None] = _pause
) -> None:
    """Show the view once, or repeat it for ever. A failure of the first time ends the command; a
    later one is printed, and the next attempt may succeed.
    """
    show()
    while is_watched:
        sys.stdout.flush()
        sleep(INTERVAL_S)
        sys.stdout.write(_CLEAR if sys.stdout.isatty() else "\n")
        print(iso_ms(SystemClock().now_ms(), "seconds"))
        try:
            show()
        except CommandFailed as failure:
            print(f"hermes: {failure.message}")
