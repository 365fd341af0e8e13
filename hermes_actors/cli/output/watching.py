"""`--watch`: shows the same again and again; in place on a terminal, appended in a pipe."""

import contextlib
import io
import sys
from collections.abc import Callable
from typing import Annotated

import trio
import typer

from hermes_actors.cli.command_line.failures import CommandFailed
from hermes_actors.model.moments import iso_ms
from hermes_actors.runtime.clock import SystemClock

INTERVAL_S = 2.0

WatchOption = Annotated[
    bool,
    typer.Option("--watch", "-w", help=f"Show it again each {INTERVAL_S:g} s, until Ctrl-C."),
]


class _Screen(io.StringIO):
    """Takes what is shown; as colourful as the terminal that it is for."""

    def isatty(self) -> bool:
        return sys.__stdout__ is not None and sys.__stdout__.isatty()


def _pause(pause_s: float) -> None:
    trio.run(trio.sleep, pause_s)


def watched(
    show: Callable[[], None], is_watched: bool, sleep: Callable[[float], None] = _pause
) -> None:
    """Show it once, or for ever. The first failure ends the command; a later one is shown in the
    place of what could not be had, and the next look may succeed.
    """
    if not is_watched:
        show()
        return
    picture = _taken(show)
    if sys.stdout.isatty():
        _redraw(show, picture, sleep)
        return
    while True:
        sys.stdout.write(f"{_now()}\n{picture}\n")
        sys.stdout.flush()
        sleep(INTERVAL_S)
        picture = _or_failure(show)


def _redraw(show: Callable[[], None], picture: str, sleep: Callable[[float], None]) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    def drawn(picture: str) -> Text:
        head = f"each {INTERVAL_S:g} s, Ctrl-C ends it; {_now()}\n"
        return Text.from_ansi(head + picture.rstrip("\n"))

    console = Console(file=sys.stdout, highlight=False)
    with Live(drawn(picture), console=console, auto_refresh=False) as live:
        while True:
            sleep(INTERVAL_S)
            live.update(drawn(_or_failure(show)), refresh=True)


def _taken(show: Callable[[], None]) -> str:
    screen = _Screen()
    with contextlib.redirect_stdout(screen):
        show()
    return screen.getvalue()


def _or_failure(show: Callable[[], None]) -> str:
    try:
        return _taken(show)
    except CommandFailed as failure:
        return f"hermes: {failure.message}\n"


def _now() -> str:
    return iso_ms(SystemClock().now_ms(), "seconds")
