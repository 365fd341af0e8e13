"""Sets of jars, fetched once by Maven into a cache folder named by the pom's hash."""

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hermes_local.failures import LaunchFailed
from hermes_local.files import locked
from hermes_local.java import maven_command

FETCH_TIMEOUT_S = 600


@dataclass(frozen=True)
class JarSet:
    """The jars that one pom lists, fetched when first needed.

    `owner` is whose jars they are, for messages. `cache` names their folder in the cache. The
    environment `variable` may name a folder that has them; then Maven is not used. `place` is the
    pom's folder in a checkout, which has its own cache.
    """

    owner: str
    cache: str
    variable: str
    pom: Path
    place: str

    def classpath(self, environment: Mapping[str, str] = os.environ) -> str:
        """All jars, joined for `java -cp`. Raises LaunchFailed if they cannot be fetched."""
        return os.pathsep.join(map(str, _jars_in(self.folder(environment))))

    def folder(self, environment: Mapping[str, str] = os.environ) -> Path:
        """The folder with the jars, fetched if necessary. Raises LaunchFailed."""
        given = environment.get(self.variable)
        if given:
            folder = Path(given).expanduser().resolve()
            if not _jars_in(folder):
                raise LaunchFailed(
                    f"{self.variable} is {given}, and it has no jars; set it to a folder with "
                    f"{self.owner}'s jars, or unset it, so that Maven fetches them"
                )
            return folder
        folder = self.cache_folder(environment)
        # It is renamed only when complete, so if it exists it is complete.
        if folder.is_dir():
            return folder
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with locked(folder.with_suffix(".lock")):
                if not folder.is_dir():
                    self._fetch(folder, environment)
        except OSError as error:
            raise LaunchFailed(
                f"{self.owner}'s jars cannot be kept in {folder.parent}: "
                f"{error.strerror or error}; free some space or make it writable, or set "
                f"{self.variable} to a folder that has the jars"
            ) from error
        return folder

    def cache_folder(self, environment: Mapping[str, str] = os.environ) -> Path:
        """The folder of the downloaded jars: in the checkout, else in the user's cache."""
        key = hashlib.sha256(self.pom.read_bytes()).hexdigest()[:16]
        project = Path(str(self.pom.parent).removesuffix(self.place))
        if (project / "pyproject.toml").is_file():
            return project / ".cache" / self.cache / key
        home = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(home) / "hermes_actors" / self.cache / key

    def _fetch(self, folder: Path, environment: Mapping[str, str]) -> None:
        print(f"fetching {self.owner}'s jars, once …", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            partial = Path(temporary) / "jars"
            partial.mkdir()
            # Proxies and mirrors are configured in Maven's own settings.
            command = [
                maven_command(self.owner, self.variable, environment),
                "--batch-mode",
                "--quiet",
                f"--file={self.pom}",
                "prepare-package",
                f"-Djars.folder={partial}",
            ]
            failure = _failure_of(command, environment)
            if not failure and not _jars_in(partial):
                failure = "it succeeded, but fetched no jars"
            if failure:
                raise LaunchFailed(
                    f"Maven could not fetch {self.owner}'s jars: {failure}; check the network and "
                    f"Maven's settings, or set {self.variable} to a folder that has the jars"
                )
            partial.rename(folder)


KAFKA = JarSet(
    "Kafka",
    "kafka",
    "LOCAL_KAFKA_JARS",
    Path(__file__).with_name("pom.xml"),
    "deploy/local/hermes_local",
)
"""The jars of a broker."""


def _jars_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jar"))


def _failure_of(command: list[str], environment: Mapping[str, str]) -> str:
    """The first error of a command. Empty string if it succeeded."""
    try:
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            errors="replace",
            timeout=FETCH_TIMEOUT_S,
            env=dict(environment),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it did not end within {FETCH_TIMEOUT_S} s"
    if answer.returncode == 0:
        return ""
    # Show Maven's errors first, because Java's warnings are on stderr too.
    said = (answer.stdout + answer.stderr).replace("[ERROR]", "").splitlines()
    first = next(filter(None, map(str.strip, said)), "it printed nothing")
    return f"exit code {answer.returncode}, {first[:300].rstrip('.')}"
