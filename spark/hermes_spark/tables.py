"""Tables of a job's output: folders of Parquet."""

from pathlib import Path
from typing import Any


def written(rows: Any, folder: Path) -> Any:
    """Write the rows, in the place of what was there; gives them as they lie there from now on."""
    # The JVM may have been started in another folder, and a cluster's own files may lie elsewhere.
    path = f"file://{folder.absolute()}"
    rows.write.mode("overwrite").parquet(path)
    # Without the schema Spark runs a job to find it.
    return rows.sparkSession.read.schema(rows.schema).parquet(path)
