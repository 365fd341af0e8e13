"""Starts Spark's Python workers on one machine from the installed PySpark, not from its zip.

Spark puts `pyspark.zip` and one of its jars on its workers' path. Python compiles imports from
there again in each process, and for each task PySpark makes it read both directories again: some
0.2 s of a core (Python 3.11), more than most tasks take.
"""

import gc
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder


def without_archives(path: Sequence[str]) -> list[str]:
    """The path without Spark's zips and jars, if PySpark and Py4J can be found without them."""
    archives = ("/pyspark.zip", "-src.zip", ".jar")
    plain = [each for each in path if not each.endswith(archives)]
    is_installed = all(PathFinder.find_spec(name, plain) for name in ("pyspark", "py4j"))
    return plain if is_installed else list(path)


if __name__ == "__main__":
    sys.path[:] = without_archives(sys.path)
    sys.path_importer_cache.clear()
    # The arguments name the module that the workers run.
    from pyspark.daemon import manager

    # Workers are forked from here and collect garbage after each task, which need not visit the
    # modules.
    gc.freeze()
    manager()
