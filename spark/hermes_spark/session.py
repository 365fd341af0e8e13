"""The one way to a Spark session, with settings that every job and test counts on."""

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
"""Enough for tens of millions of messages within 2 GB; Spark puts small ones together, and a
cluster's own setting wins.
"""
LOGGING = Path(__file__).with_name("log4j2.properties")

_SETTINGS = {
    # What is read is text and numbers of UTC, whatever the machine's zone.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Plain predicates reach the embedded log's reader, which skips what they exclude.
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.adaptive.enabled": "true",
    # Its first level holds 65,536 groups: of as many messages as rows it is only looked at in vain.
    "spark.sql.codegen.aggregate.map.twolevel.enabled": "false",
    # Spark's own, and what Kafka's client is told by its JAAS configuration.
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.python.daemon.module": "hermes_spark.workers",
    # Errors only, on a terminal that shows a job's own lines.
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
    "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
}


def require_spark(environment: Mapping[str, str] = os.environ) -> None:
    """Raises LaunchFailed, which says how to install it, when PySpark or Java is not here."""
    missing = [
        name for name in ("pyspark", "pandas", "pyarrow") if importlib.util.find_spec(name) is None
    ]
    if missing:
        raise LaunchFailed(
            f"the Spark jobs need {', '.join(missing)}; install the extra: "
            "pip install 'hermes_actors[spark]' (in a checkout: make spark)"
        )
    java_command(environment, owner="Spark")


def session(
    name: str,
    master: str = "",
    settings: Mapping[str, str] | None = None,
    jars: Sequence[str] | None = None,
) -> Any:
    """The SparkSession of this process: the one that runs already, else a new one.

    `master` "" is what spark-submit or Spark's own configuration says, else `local[2]`; `settings`
    come on top of ours. `jars` are the paths of Kafka's and Avro's jars, fetched if they are not
    given; under spark-submit those of its `--jars` serve. Raises LaunchFailed when PySpark, Java or
    the jars cannot be had.
    """
    require_spark()
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    # Workers of this machine run the Python that runs us; a cluster's image says its own.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        # Started by spark-submit, whose settings are in the JVM that runs already.
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
