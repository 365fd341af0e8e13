"""The jars that Spark needs beside its own: Kafka's source and client, and Avro."""

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
"""What the pom beside this file lists; HERMES_SPARK_JARS may name a folder that has it."""


def jar_paths(environment: Mapping[str, str] = os.environ) -> list[str]:
    """The path of each jar, fetched if need be. Raises LaunchFailed."""
    return SPARK.classpath(environment).split(os.pathsep)
