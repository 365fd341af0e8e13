"""The `hermes` command, also as `python -m hermes_actors`."""

import signal
import sys


def main() -> None:
    """The console script. Never returns: exits with 0, 1, 2 or 130."""
    if sys.argv[1:2] == ["node"]:
        # SIGHUP makes a node read its files again. It must not end one that is still importing.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    from hermes_actors.cli import main as command

    command.main()


if __name__ == "__main__":
    main()
