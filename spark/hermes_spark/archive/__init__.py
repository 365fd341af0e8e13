"""The archive: all datacentres' topics in a folder of Parquet files, by topic, date and hour."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from hermes_spark.archive.commits import load_manifest
from hermes_spark.archive.layout import RECORDS, topics_of
from hermes_spark.columns import COLUMNS, STORED, schema_of


def archived(
    spark: Any,
    folder: Path,
    topics: Collection[str] | None = None,
    columns: Sequence[str] = COLUMNS,
) -> Any:
    """A DataFrame with a row for each record that the archive in that folder holds, in the same
    columns as `hermes_spark.sources.stored`: exactly those of the commits that are done now.

    `topics` are all where they are None. Running it fails where hours were compacted or deleted
    meanwhile. Raises LaunchFailed where there is no archive.
    """
    from pyspark.sql import functions as f

    manifest = load_manifest(folder)
    records = f"file://{folder.absolute() / RECORDS}"
    found = [
        f"{records}/topic={topic}"
        for topic in topics_of(folder)
        if topics is None or topic in topics
    ]
    if not found:
        return spark.createDataFrame([], schema_of(columns))
    rows = spark.read.schema(STORED).option("basePath", records).parquet(*found)
    # A commit that is under way has put some of its files there already.
    name = f.substring_index(f.col("_metadata.file_name"), "-", -2)
    sequence = f.substring_index(name, "-", 1).cast("bigint")
    return rows.where(sequence <= manifest.sequence).select(*columns)
