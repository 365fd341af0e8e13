"""Starts Spark's Python workers on one machine from the PySpark that is installed, not its zip.

Spark puts `pyspark.zip` and one of its jars on its workers' path. Python compiles what it imports
from there anew in each process, and for each task PySpark lets it read the directories of both
again: some 0.2 s of a core (Python 3.11), which is more than most tasks take.
"""

import gc
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder


def without_archives(path: Sequence[str]) -> list[str]:
    """The path without Spark's zips and jars, where PySpark and Py4J are found without them too."""
    archives = ("/pyspark.zip", "-src.zip", ".jar")
    plain = [each for each in path if not each.endswith(archives)]
    is_installed = all(PathFinder.find_spec(name, plain) for name in ("pyspark", "py4j"))
    return plain if is_installed else list(path)


if __name__ == "__main__":
    sys.path[:] = without_archives(sys.path)
    sys.path_importer_cache.clear()
    # The name of what the workers run is in the arguments: it is imported by that.
    from pyspark.daemon import manager

    # Workers are forked from here, and look for garbage after each task: not among the modules.
    gc.freeze()
    manager()
