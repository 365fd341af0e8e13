"""The Java virtual machine of a broker: the command line that starts it quickly."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from hermes_local import jars
from hermes_local.java import java_command, release

FAST_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Less compiling and fewer threads: for tests, which start many brokers for little work."""
FULL_SPEED = ("-XX:+UseG1GC",)
"""As Kafka's own scripts choose: for measurements, and for a broker that stays."""


def java_arguments(main: str, heap_mb: int, options: Sequence[str]) -> list[str]:
    """`java … main`, to which the program's own arguments are added. Raises LaunchFailed."""
    archive = archive_path()
    shared = [f"-XX:SharedArchiveFile={archive}"] if archive and archive.is_file() else []
    return [
        java_command(),
        f"-Xmx{heap_mb}m",
        # Better gone, and seen to be, than half dead.
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:-UsePerfData",
        *shared,
        *options,
        "-Djava.awt.headless=true",
        "-cp",
        jars.KAFKA.classpath(),
        main,
    ]


def archive_path() -> Path | None:
    """Where the archive of Kafka's classes for this Java lies or will lie, beside our jars.

    None for jars that were given by LOCAL_KAFKA_JARS: nothing is written there.
    """
    if os.environ.get(jars.KAFKA.variable):
        return None
    java = java_command()
    key = hashlib.sha256(f"{Path(java).resolve()}\n{release(java)}".encode()).hexdigest()[:16]
    return jars.KAFKA.folder() / f"classes-{key}.jsa"
