"""One Spark session for all tests of this folder that need it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_spark.session import session

# With few records the JVM's second compiler costs more than it saves.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # A test that uses Spark needs Java; a forgotten mark would break `make check`.
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            if item.get_closest_marker("timeout") is None:
                # On a busy machine the first job alone may take two minutes.
                item.add_marker(pytest.mark.timeout(400))
            # PySpark's client leaves sockets to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(
                pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
            )


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session with two local cores, started once; its files are in a folder of the run."""
    folder: Path = tmp_path_factory.mktemp("spark")
    running = session(
        "tests",
        master="local[2]",
        settings={
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "1g",
            "spark.local.dir": str(folder / "local"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        },
    )
    yield running
    running.stop()
