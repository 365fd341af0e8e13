"""One service of a compose file as a local process: start it, end it, pause it, ask its health."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hermes_actors import config
from hermes_local.composefile import Healthcheck, ServiceSpec
from hermes_local.interpolation import ComposeWrong
from hermes_local.processes import ProcessId

LAST_WORDS_BYTES = 2_000
_KILLED_WITHIN_S = 30.0
_POLL_S = 0.05
_ASKED_EACH_S = 1.0
# What a process needs of this shell; the rest is not in a container either.
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "JAVA_HOME", "PYTHONPATH", "VIRTUAL_ENV")


class DidNotStart(ComposeWrong):
    """A service ended, or was not healthy in time; the message holds its last words."""


class Service(ABC):
    """A service of the topology. `ports` are the container's, bound at `address`.

    Not safe for use by two threads at once.
    """

    def __init__(self, spec: ServiceSpec, address: str, folder: Path) -> None:
        self.spec = spec
        self.name = spec.name
        self.address = address
        self.ports = _ports(spec)
        self.folder = folder
        self.log_path = folder / "log"
        self.check: Healthcheck | None = None
        self.on_started: Callable[[ProcessId], None] = lambda _: None

    @property
    @abstractmethod
    def process(self) -> ProcessId | None:
        """The process that was started last; None before the first start."""

    @abstractmethod
    def start(self) -> None:
        """Start it; returns at once. Raises ComposeWrong where it runs already."""

    @abstractmethod
    def health(self) -> str:
        """What is wrong with it; "" when it is healthy, or has no health check."""

    @property
    def logs(self) -> tuple[Path, ...]:
        """The files that it writes of itself."""
        return (self.log_path,)

    def client_urls(self) -> dict[str, str]:
        """What the `hermes` command reads (a variable's name) → this service's URL."""
        return {}

    def url(self, port: int) -> str:
        """The base URL of one of its ports."""
        return f"http://{self.address}:{port}"

    @property
    def stop_signal(self) -> signal.Signals:
        """What asks it to end."""
        return signal.Signals[self.spec.stop_signal]

    @property
    def check_interval_s(self) -> float:
        """How often its health is asked while it starts."""
        check = self.spec.healthcheck
        return 0.0 if check is None else min(check.start_interval_s, _ASKED_EACH_S)

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        process = self.process
        return process.pid if process is not None and process.is_running else None

    @property
    def is_running(self) -> bool:
        """Whether it runs; a paused one does."""
        return self.pid is not None

    def stop(self) -> bool:
        """Ask it to end, as the compose file says; True when it did so within its grace period."""
        self.begin_stop()
        return self.finish_stop()

    def begin_stop(self) -> None:
        """Ask it to end, once: a node takes a second signal for impatience."""
        if self.process is not None:
            self.process.send(self.stop_signal)
            # A paused one takes no signal but SIGKILL until it goes on.
            self.process.send(signal.SIGCONT)

    def finish_stop(self) -> bool:
        """Wait for its grace period; kill it then. True when it ended by itself."""
        in_time = self.process is None or self.process.wait_ended(self.spec.stop_grace_s)
        if not in_time:
            self.kill()
        return in_time

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        if self.process is not None:
            self.process.send(signal.SIGKILL)
            self.process.wait_ended(_KILLED_WITHIN_S)

    def pause(self) -> None:
        """SIGSTOP: it keeps its connections and does nothing."""
        if self.process is not None:
            self.process.send(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        if self.process is not None:
            self.process.send(signal.SIGCONT)

    def restart(self, *, timeout_s: float = 60.0) -> None:
        """Stop it if it runs, start it, wait until it is healthy. Raises DidNotStart."""
        self.stop()
        self.start()
        self.wait_healthy(timeout_s)

    def wait_healthy(self, timeout_s: float = 60.0) -> None:
        """Raises DidNotStart when it ends before, or when the time is over."""
        deadline_s = time.monotonic() + timeout_s
        while fault := self.health():
            if not self.is_running:
                raise DidNotStart(f"{self.name} ended:\n{self.last_words()}")
            if time.monotonic() > deadline_s:
                raise DidNotStart(
                    f"{self.name} is not healthy after {timeout_s:.0f} s: {fault}\n"
                    f"{self.last_words()}"
                )
            time.sleep(_POLL_S)

    def last_words(self) -> str:
        """The end of its log."""
        with contextlib.suppress(OSError), self.log_path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LAST_WORDS_BYTES))
            return file.read().decode(errors="replace").strip()
        return ""


@dataclass(frozen=True)
class Command:
    """What a process is started with, containers' names and paths rewritten."""

    words: tuple[str, ...]
    environment: Mapping[str, str]


class NodeProcess(Service):
    """A node of ours, run by this interpreter."""

    def __init__(
        self,
        spec: ServiceSpec,
        address: str,
        folder: Path,
        command: Command,
        check: Healthcheck | None,
    ) -> None:
        super().__init__(spec, address, folder)
        self.command = command
        self.check = check
        self._popen: subprocess.Popen[bytes] | None = None
        self._process: ProcessId | None = None

    @property
    def process(self) -> ProcessId | None:
        """The process that was started last."""
        return self._process

    def start(self) -> None:
        """Start it with the same command, environment and address as before."""
        if self.is_running:
            raise ComposeWrong(f"{self.name}: runs already")
        self._reap()
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._popen = subprocess.Popen(
                self.command.words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=environment_of(self.command.environment),
                # So that Ctrl-C in the terminal reaches the launcher, which asks each to drain.
                start_new_session=True,
            )
        self._process = ProcessId.of(self._popen.pid)
        self.on_started(self._process)

    def health(self) -> str:
        """Run the health check of the compose file."""
        if not self.is_running:
            return "it does not run"
        return "" if self.check is None else run_check(self.check, environment_of({}))

    def client_urls(self) -> dict[str, str]:
        """Those of the roles that its configuration gives it."""
        words = self.command.words
        path = Path(words[words.index("--config") + 1]) if "--config" in words[:-1] else None
        try:
            found = config.load(path, self.command.environment)
        except config.ConfigError:
            # The node itself says so, where it is looked for.
            return {}
        urls = {}
        if "management" in found.roles:
            at = found.management
            urls["HERMES_MANAGEMENT_URL"] = f"http://{at.host}:{at.port}"
        if "frontend" in found.roles:
            urls["HERMES_PUBLISH_URL"] = f"http://{found.frontend.host}:{found.frontend.port}"
        return urls

    def finish_stop(self) -> bool:
        """Wait for its grace period; kill it then. True when it ended by itself."""
        in_time = super().finish_stop()
        self._reap()
        return in_time

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        super().kill()
        self._reap()

    @property
    def exit_code(self) -> int | None:
        """How it ended; None before its first start and while it runs."""
        return None if self._popen is None else self._popen.poll()

    def _reap(self) -> None:
        if self._popen is not None and not self.is_running:
            self._popen.wait()


def run_check(check: Healthcheck, environment: Mapping[str, str]) -> str:
    """What a health check says is wrong; "" when it exits with 0."""
    try:
        done = subprocess.run(
            check.test,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=check.timeout_s,
            env=dict(environment),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"its health check took more than {check.timeout_s:.0f} s"
    except OSError as error:
        return f"its health check cannot be run: {error}"
    if done.returncode == 0:
        return ""
    said = " ".join((done.stdout + done.stderr).split())[-300:]
    return said or f"its health check exited with {done.returncode}"


def environment_of(service: Mapping[str, str]) -> dict[str, str]:
    """What a process of a service sees: its own variables, and the few it needs of this shell."""
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return {**inherited, "PYTHONUNBUFFERED": "1", **service}


def program_of(
    words: tuple[str, ...], known: Mapping[str, tuple[str, ...]], place: str
) -> tuple[str, ...]:
    """The words with their program found on this machine. Raises ComposeWrong."""
    program, *arguments = words
    if program not in known:
        raise ComposeWrong(
            f"{place}: '{program}' is not known to this launcher; known are {', '.join(known)}"
        )
    return (*known[program], *arguments)


PROGRAMS: dict[str, tuple[str, ...]] = {
    "hermes": (sys.executable, "-m", "hermes_actors.cli"),
    "python": (sys.executable,),
}
"""What our image holds, as it is run here."""


def _ports(spec: ServiceSpec) -> tuple[int, ...]:
    return tuple(dict.fromkeys(port.target for port in spec.ports))
