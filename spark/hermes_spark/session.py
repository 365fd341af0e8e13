"""Creates Spark sessions, with settings that every job and test relies on."""

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hermes_local.failures import LaunchFailed
from hermes_local.java import java_command
from hermes_spark.jars import jar_paths

LOCAL_MASTER = "local[2]"
SHUFFLE_PARTITIONS = 32
"""Enough for tens of millions of messages within 2 GB. Spark merges small partitions, and a
cluster's own setting wins.
"""
LOGGING = Path(__file__).with_name("log4j2.properties")

_SETTINGS = {
    # Read text and numbers are in UTC, whatever the machine's time zone.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Plain predicates reach the embedded log's reader, which skips excluded records.
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.adaptive.enabled": "true",
    # Spark merges partitions by their compressed size, and ids compress well: a fold of its default
    # of 64 MB of them does not fit into memory.
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "8m",
    # Its first level has 65,536 groups; with as many messages as rows it is searched in vain.
    "spark.sql.codegen.aggregate.map.twolevel.enabled": "false",
    # Spark's own pattern, plus the JAAS configuration of Kafka's client.
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.python.daemon.module": "hermes_spark.workers",
    # Only errors on the terminal, which shows a job's own lines.
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
    "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
}


def require_spark(environment: Mapping[str, str] = os.environ) -> None:
    """Raise LaunchFailed, with installation instructions, if PySpark or Java is missing."""
    missing = [
        name for name in ("pyspark", "pandas", "pyarrow") if importlib.util.find_spec(name) is None
    ]
    if missing:
        raise LaunchFailed(
            f"the Spark jobs need {', '.join(missing)}; in a checkout run 'make spark', or "
            "pip install '.[spark]'"
        )
    java_command(environment, owner="Spark")


def session(
    name: str,
    master: str = "",
    settings: Mapping[str, str] | None = None,
    jars: Sequence[str] | None = None,
) -> Any:
    """The SparkSession of this process: the running one, else a new one.

    An empty `master` means that of spark-submit or Spark's configuration, else `local[2]`;
    `settings` override ours. `jars` are the paths of Kafka's and Avro's jars, fetched by default;
    under spark-submit those of its `--jars` are used. Raises LaunchFailed if PySpark, Java or the
    jars are missing.
    """
    require_spark()
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    # Workers on this machine use our Python; a cluster's image sets its own.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        # Started by spark-submit, whose settings are in the running JVM.
        SparkContext._ensure_initialized()
    given = SparkConf()
    is_submitted = given.contains("spark.master")
    builder = SparkSession.builder.appName(name)
    wanted = dict(_SETTINGS)
    if master or not is_submitted:
        builder = builder.master(master or LOCAL_MASTER)
        if (master or LOCAL_MASTER).startswith("local"):
            wanted |= _LOCAL_SETTINGS
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if not given.contains("spark.jars"):
        wanted["spark.jars"] = ",".join(jar_paths() if jars is None else jars)
    for key, value in (wanted | dict(settings or {})).items():
        if (settings and key in settings) or not given.contains(key):
            builder = builder.config(key, value)
    return builder.getOrCreate()
