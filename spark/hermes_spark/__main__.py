"""Entry point for `spark-submit`: `… __main__.py snapshot …` is `hermes spark snapshot …`.

Also works from a zip given by `--py-files`, without an installed entry point.
"""

import sys

from hermes_actors.cli.command_line.lazy import LazyCommand
from hermes_actors.cli.main import HermesGroup

if __name__ == "__main__":
    group = HermesGroup(name="hermes")
    group.add_command(LazyCommand("spark", "hermes_spark.commands:app", "The data pipeline."))
    group.main(["spark", *sys.argv[1:]], prog_name="hermes")
