"""Kafka's jars, fetched by Maven once into a cache folder that the pom's hash names."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from hermes_local.failures import LaunchFailed
from hermes_local.java import maven_command

JARS_VARIABLE = "LOCAL_KAFKA_JARS"
POM = Path(__file__).with_name("pom.xml")
FETCH_TIMEOUT_S = 600


def classpath(environment: Mapping[str, str] = os.environ) -> str:
    """The jars of a broker, joined for `java -cp`. The first call on a machine fetches them.

    LOCAL_KAFKA_JARS may name a folder that has them; then Maven is not asked. Raises
    LaunchFailed when they cannot be had.
    """
    return os.pathsep.join(map(str, _jars_in(jars_folder(environment))))


def are_here(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether nothing has to be fetched."""
    return bool(environment.get(JARS_VARIABLE)) or cache_folder(environment).is_dir()


def jars_folder(environment: Mapping[str, str] = os.environ, pom: Path = POM) -> Path:
    """The folder that holds the jars, filled if need be. Raises LaunchFailed."""
    given = environment.get(JARS_VARIABLE)
    if given:
        folder = Path(given).expanduser().resolve()
        if not _jars_in(folder):
            raise LaunchFailed(
                f"{JARS_VARIABLE} is {given}, and there are no jars in it; let it name a folder "
                "with Kafka's jars, or unset it, so that Maven fetches them"
            )
        return folder
    return _fetched(cache_folder(environment, pom), pom, environment)


def cache_folder(environment: Mapping[str, str] = os.environ, pom: Path = POM) -> Path:
    """Where the jars of `pom` lie or will lie: in the checkout, else in the user's cache."""
    key = hashlib.sha256(pom.read_bytes()).hexdigest()[:16]
    project = pom.parents[3]
    if (project / "pyproject.toml").is_file() and pom.parent.parent.name == "local":
        return project / ".cache" / "kafka" / key
    home = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "hermes_actors" / "kafka" / key


def _jars_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jar"))


def _fetched(folder: Path, pom: Path, environment: Mapping[str, str]) -> Path:
    # The folder gets its name when it is complete, so its being there is enough.
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder.with_suffix(".lock")):
            if not folder.is_dir():
                _fetch(folder, pom, environment)
    except OSError as error:
        raise LaunchFailed(
            f"Kafka's jars cannot be kept in {folder.parent}: {error.strerror or error}; free some "
            f"space or make it writable, or let {JARS_VARIABLE} name a folder that has the jars"
        ) from error
    return folder


def _fetch(folder: Path, pom: Path, environment: Mapping[str, str]) -> None:
    partial = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        # No proxies' or mirrors' names here: Maven's own settings know them.
        command = [
            maven_command(environment),
            "--batch-mode",
            "--quiet",
            f"--file={pom}",
            "prepare-package",
            f"-Djars.folder={partial}",
        ]
        failure = _run(command, environment)
        if failure is None and not _jars_in(partial):
            failure = "it ended well, but brought no jars"
        if failure is not None:
            raise LaunchFailed(
                f"Maven could not fetch Kafka's jars: {failure}; check the network and Maven's "
                f"settings, or let {JARS_VARIABLE} name a folder that has the jars"
            )
        partial.chmod(0o755)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _run(command: list[str], environment: Mapping[str, str]) -> str | None:
    """None if it ended well, else its first error."""
    try:
        answer = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=FETCH_TIMEOUT_S,
            env=dict(environment),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it did not end within {FETCH_TIMEOUT_S} s"
    if answer.returncode == 0:
        return None
    lines = [line.strip() for line in (answer.stdout + answer.stderr).splitlines()]
    errors = [line.removeprefix("[ERROR]").strip() for line in lines if "ERROR" in line]
    first = next(filter(None, errors), None) or next(filter(None, lines), "it said nothing")
    return f"exit code {answer.returncode}, {first[:300].rstrip('.')}"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the file's lock: one process at a time, and given back by the kernel at its end."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
