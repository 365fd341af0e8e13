"""The archive: all datacentres' topics as Parquet files, by topic, date and hour."""

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
    """A DataFrame with a row for each record in the archive, in the columns of
    `hermes_spark.sources.stored`. It contains exactly the commits that are complete now.

    `topics` None means all. Running it fails if hours are compacted or deleted in the meantime.
    Raises LaunchFailed if there is no archive.
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
    # A commit under way may have moved some of its files already.
    name = f.substring_index(f.col("_metadata.file_name"), "-", -2)
    sequence = f.substring_index(name, "-", 1).cast("bigint")
    return rows.where(sequence <= manifest.sequence).select(*columns)
