"""`--watch`: shows the same again and again; in place on a terminal, appended in a pipe."""

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
    typer.Option("--watch", "-w", help=f"Show it again each {INTERVAL_S:g} s, until Ctrl-C."),
]


def _pause(pause_s: float) -> None:
    trio.run(trio.sleep, pause_s)


def watched(
    show: Callable[[], None], is_watched: bool, sleep: Callable[[float], None] = _pause
) -> None:
    """Show it once, or for ever. The first failure ends the command; a later one is shown, and the
    next look may succeed.
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
