"""`python -m hermes_actors.cli` is the `hermes` command."""

from hermes_actors.cli.main import main

if __name__ == "__main__":
    main()
