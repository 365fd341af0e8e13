"""The `hermes` command, also as `python -m hermes_actors`."""

import signal
import sys


def main() -> None:
    """The console script. Never returns: exits with 0, 1, 2 or 130."""
    if sys.argv[1:2] == ["node"]:
        # It asks a node to read its files again, and must not end one that is still being loaded.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    from hermes_actors.cli import main as command

    command.main()


if __name__ == "__main__":
    main()
