"""`python -m hermes_actors.cli` is the `hermes` command."""

from hermes_actors.__main__ import main

if __name__ == "__main__":
    main()
