"""A job's output tables: folders of Parquet."""

from pathlib import Path
from typing import Any


def written(rows: Any, folder: Path) -> Any:
    """Write the rows, replacing older ones. Return them as read back from the folder."""
    # The JVM may have another working directory, and a cluster's default file system may be remote.
    path = f"file://{folder.absolute()}"
    rows.write.mode("overwrite").parquet(path)
    # Without the schema Spark would run a job to infer it.
    return rows.sparkSession.read.schema(rows.schema).parquet(path)
