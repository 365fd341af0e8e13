"""Spark's Python workers on this machine: where they take PySpark from."""

import sys

from hermes_spark.workers import without_archives


def test_workers_take_the_pyspark_that_is_installed_and_look_into_no_archive(spark):
    def seen(frames):
        import pandas as pd
        import pyspark

        for _ in frames:
            looked_into = ", ".join(sys.path_importer_cache)
            yield pd.DataFrame({"pyspark": [pyspark.__file__], "looked_into": [looked_into]})

    (row,) = spark.range(1).mapInPandas(seen, "pyspark STRING, looked_into STRING").collect()
    assert "pyspark.zip" not in row.pyspark
    assert "pyspark.zip" not in row.looked_into
    assert ".jar" not in row.looked_into


def test_archives_stay_where_they_alone_have_pyspark(tmp_path):
    path = ["/spark/python/lib/pyspark.zip", "/spark/jars/spark-core.jar", str(tmp_path)]
    assert without_archives(path) == path
    for name in ("pyspark", "py4j"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    assert without_archives(path) == [str(tmp_path)]
