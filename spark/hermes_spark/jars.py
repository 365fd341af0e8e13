"""The jars that Spark needs in addition: Kafka's source and client, and Avro."""

import os
from collections.abc import Mapping
from pathlib import Path

from hermes_local.jars import JarSet

SPARK = JarSet(
    "Spark",
    "spark",
    "HERMES_SPARK_JARS",
    Path(__file__).with_name("pom.xml"),
    "spark/hermes_spark",
)
"""The jars in the adjacent pom; HERMES_SPARK_JARS may name a folder that has them."""


def jar_paths(environment: Mapping[str, str] = os.environ) -> list[str]:
    """The path of each jar, fetched if necessary. Raises LaunchFailed."""
    return SPARK.classpath(environment).split(os.pathsep)
