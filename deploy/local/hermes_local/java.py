"""Finds Java and Maven on this machine, or says what is missing."""

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Mapping

from hermes_local.failures import LaunchFailed

JAVA_VERSION_MIN = 17
_INSTALL = "install a JDK 17 or newer (Debian: apt-get install openjdk-17-jdk-headless)"


def java_command(environment: Mapping[str, str] = os.environ, owner: str = "Kafka") -> str:
    """The path of a recent enough `java`: in JAVA_HOME, else the first on the PATH.

    `owner` is what needs it, for the message. Raises LaunchFailed if there is none.
    """
    home = environment.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else environment.get("PATH", ""))
    if found is None and home:
        raise LaunchFailed(
            f"JAVA_HOME is {home}, but there is no bin/java in it; correct or unset JAVA_HOME"
        )
    if found is None:
        raise LaunchFailed(f"{owner} needs Java, and there is no java on the PATH; {_INSTALL}")
    version = _version_of(found)
    if version < JAVA_VERSION_MIN:
        raise LaunchFailed(
            f"{owner} needs Java {JAVA_VERSION_MIN}, and {found} is Java {version}; {_INSTALL}, "
            "or set JAVA_HOME to a newer one"
        )
    return found


def maven_command(owner: str, variable: str, environment: Mapping[str, str] = os.environ) -> str:
    """The path of `mvn`, to fetch the owner's jars. Raises LaunchFailed if there is none; the
    message mentions the variable that may name a folder with the jars.
    """
    found = shutil.which("mvn", path=environment.get("PATH", ""))
    if found is None:
        raise LaunchFailed(
            f"{owner}'s jars are fetched by Maven, and there is no mvn on the PATH; install Maven "
            f"(Debian: apt-get install maven), or set {variable} to a folder that has the jars"
        )
    return found


def feature_version(text: str) -> int | None:
    """The feature release (8, 17, 21) in the output of `java -version`; None if there is none."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match.group(1)) if match else None


@functools.cache
def _version_of(java: str) -> int:
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchFailed(f"{java} cannot be run: {error}; {_INSTALL}") from error
    version = feature_version(answer.stderr + answer.stdout)
    if version is None:
        raise LaunchFailed(f"{java} -version prints no version; {_INSTALL}")
    return version
