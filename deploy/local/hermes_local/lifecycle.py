"""Starts, ends and pauses the processes of a topology or a cluster, and checks their health."""

import contextlib
import os
import re
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Self

import msgspec

from hermes_local.failures import LaunchFailed
from hermes_local.files import make_folder, remove, remove_empty, write_private
from hermes_local.ports import is_free
from hermes_local.processes import ProcessId, Tether

START_TIMEOUT_S = 180.0
STATE_FILE = "state.json"
_LAST_LINES = 200
_KILLED_WITHIN_S = 30.0
_PAUSED_WITHIN_S = 20.0
_POLL_S = 0.05
# The variables that processes inherit; a container has no others either.
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "JAVA_HOME", "PYTHONPATH", "VIRTUAL_ENV")
_THREAD = 'Exception in thread "main" '
_REASON = re.compile(r"^(?:hermes: |Caused by: |\[?[\w.$]*(?:Exception|Error): )")

Port = Annotated[int, msgspec.Meta(gt=0, lt=65_536)]


class Plan(msgspec.Struct, frozen=True):
    """How to run a service. It binds `ports` at `host`; `check` exits with 0 if it is healthy.

    `published`: the address that Compose would publish → the local one.
    """

    name: str
    host: str = ""
    ports: tuple[Port, ...] = ()
    words: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    check: tuple[str, ...] = ()
    check_timeout_s: float = 30.0
    stop_grace_s: float = 20.0
    depends_on: tuple[str, ...] = ()
    published: dict[str, str] = {}


class Service:
    """A process, possibly started by another shell: its id is in `folder`.

    Not thread-safe.
    """

    def __init__(self, plan: Plan, folder: Path, tether: Tether | None = None) -> None:
        self.plan = plan
        self.name = plan.name
        self.host = plan.host
        self.folder = folder
        self.log_path = folder / "console.log"
        self._pid_file = folder / "pid"
        self._tether = tether
        self._child: subprocess.Popen[bytes] | None = None
        self._log_began = 0

    @property
    def process(self) -> ProcessId | None:
        """The process while it runs or is paused; None otherwise."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            pid, began = self._pid_file.read_text().split()
            known = ProcessId(int(pid), int(began))
            return known if known.is_running else None
        return None

    @property
    def pid(self) -> int | None:
        """The process id while it runs; None otherwise."""
        return None if (process := self.process) is None else process.pid

    @property
    def is_running(self) -> bool:
        """True if it runs or is paused."""
        return self.process is not None

    @property
    def exit_code(self) -> int | None:
        """The exit code of a process started here; None before it ends."""
        return None if self._child is None else self._child.poll()

    def url(self, port: int) -> str:
        """The base URL of one of its ports."""
        return f"http://{self.host}:{port}"

    def start(self) -> None:
        """Start it by its plan, unless it runs already. Returns at once."""
        if self.is_running:
            return
        make_folder(self.folder)
        with self.log_path.open("ab") as log:
            self._log_began = log.tell()
            self._child = subprocess.Popen(
                self.plan.words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=_environment_of(self.plan.environment),
                # So that Ctrl-C in the terminal reaches only the launcher, which drains each
                # service.
                start_new_session=True,
            )
        process = ProcessId.of(self._child.pid)
        if self._tether is not None:
            self._tether.hold(process)
        self._pid_file.write_text(f"{process.pid} {process.began}\n")

    def refuse_taken_ports(self) -> None:
        """Raise LaunchFailed if another process listens on its ports."""
        for port in self.plan.ports:
            if not is_free(port, self.host):
                raise LaunchFailed(
                    f"{self.name}: port {port} of {self.host} is in use by another process; stop "
                    "it, or choose another port or --network"
                )

    def health(self) -> str:
        """What is wrong with it. Empty string if it is healthy, or has no health check."""
        if not self.is_running:
            return "it does not run"
        if not self.plan.check:
            return ""
        try:
            done = subprocess.run(
                self.plan.check,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=self.plan.check_timeout_s,
                env=_environment_of({}),
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"its health check took more than {self.plan.check_timeout_s:.0f} s"
        if done.returncode == 0:
            return ""
        said = " ".join((done.stdout + done.stderr).split())[-300:]
        return said or f"its health check exited with {done.returncode}"

    def wait_healthy(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until it is healthy. Raises LaunchFailed if it ends, or after the time-out."""
        deadline_s = time.monotonic() + timeout_s
        while not self.has_started(deadline_s, timeout_s):
            time.sleep(_POLL_S)

    def has_started(self, deadline_s: float, timeout_s: float) -> bool:
        """True if it is healthy. Raises LaunchFailed if it has ended, or is not healthy at
        `deadline_s`, `timeout_s` after its start.
        """
        fault = self.health()
        if fault and not self.is_running:
            raise LaunchFailed(f"{self.name} ended while it started: {self.last_words()}")
        if fault and time.monotonic() > deadline_s:
            raise LaunchFailed(
                f"{self.name} is not healthy {timeout_s:.0f} s after its start: {fault}; "
                f"see {self.log_path}"
            )
        return not fault

    def last_words(self) -> str:
        """The last exception in its logs, else the last line, and where it is."""
        lines: list[tuple[str, Path]] = []
        # Kafka writes its own log, which is older than its last words on stderr.
        for path, began in ((self.folder / "broker.log", 0), (self.log_path, self._log_began)):
            with contextlib.suppress(OSError):
                said = path.read_bytes()[began:].decode(errors="replace").strip().splitlines()
                lines += [(each.removeprefix(_THREAD), path) for each in said[-_LAST_LINES:]]
        reasons = [each for each in lines if _REASON.match(each[0])] or lines[-1:]
        line, path = reasons[-1] if reasons else ("no word", self.log_path)
        return f"{line.strip().rstrip('.')}; see {path}"

    def stop(self) -> bool:
        """Ask it to end. True if it did within its grace period; otherwise it is killed."""
        self.begin_stop()
        return self.finish_stop()

    def begin_stop(self) -> None:
        """Ask it to end, once: a node treats a second signal as a demand to stop at once."""
        self._send(signal.SIGTERM)
        # A paused process gets no signal except SIGKILL until it is resumed.
        self._send(signal.SIGCONT)

    def finish_stop(self) -> bool:
        """Wait for the end that `begin_stop` asked for, then kill. True if it ended by itself."""
        process = self.process
        in_time = process is None or process.wait_ended(self.plan.stop_grace_s)
        self.kill()
        return in_time

    def kill(self) -> None:
        """Kill it with SIGKILL and wait until it has ended. Raises LaunchFailed if it
        does not end.
        """
        process = self.process
        self._send(signal.SIGKILL)
        if process is not None and not process.wait_ended(_KILLED_WITHIN_S):
            raise LaunchFailed(f"{self.name}: process {process.pid} does not end")
        if self._child is not None:
            # If its start was interrupted, it has no file yet.
            self._child.kill()
            self._child.wait(_KILLED_WITHIN_S)
        self._pid_file.unlink(missing_ok=True)

    def pause(self) -> None:
        """Pause it with SIGSTOP: its connections stay open, but it does nothing. Raises
        LaunchFailed.
        """
        self._send(signal.SIGSTOP)
        process, deadline_s = self.process, time.monotonic() + _PAUSED_WITHIN_S
        while process is not None and process.is_running and not process.is_paused:
            if time.monotonic() > deadline_s:
                raise LaunchFailed(f"{self.name}: process {process.pid} is not paused")
            time.sleep(_POLL_S / 10)

    def resume(self) -> None:
        """Resume it with SIGCONT."""
        self._send(signal.SIGCONT)

    def _send(self, signal_number: int) -> None:
        """Signal the process group, because a broker may be formatting its data in a child."""
        if (process := self.process) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal_number)


class State(msgspec.Struct, frozen=True):
    """All services started below a folder; for a topology, also its file and network."""

    plans: dict[str, Plan]
    file: str = ""
    network: str = ""

    @classmethod
    def read(cls, folder: Path, down: str) -> "State":
        """The last written state, empty if there is none.

        Raises LaunchFailed if it is damaged, with the command `down` as the remedy.
        """
        path = folder / STATE_FILE
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except (FileNotFoundError, NotADirectoryError):
            return cls({})
        except (OSError, msgspec.DecodeError) as error:
            raise LaunchFailed(
                f"{path} is damaged ({error}); restore it from a copy, or stop everything and "
                f"forget it: {down}"
            ) from error

    def write(self, folder: Path) -> None:
        """Write the state. Raises LaunchFailed."""
        write_private(folder / STATE_FILE, msgspec.json.encode(self).decode())

    def services(self, parent: Path) -> dict[str, Service]:
        """The services, whose folders are in `parent`, to inspect and end."""
        return {name: Service(plan, parent / name) for name, plan in self.plans.items()}


class Group(ABC):
    """Services that are started and ended together; `folder` has their state.

    With `is_tethered` they die with this process, however it ends. As a context manager it starts
    and stops all of them.
    """

    asked_each_s = _POLL_S
    """How often their health is checked while they start."""

    def __init__(
        self, folder: Path, *, is_tethered: bool, say: Callable[[str], None] = lambda _: None
    ) -> None:
        self.folder = folder.resolve()
        self.services: dict[str, Service] = {}
        self.healthy: list[str] = []
        self._tether = Tether()
        self._held_by = self._tether if is_tethered else None
        self._say = say

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start the services that do not run, each after its dependencies; return when all are
        healthy.

        Raises LaunchFailed. Then the services started here are ended, and the created files are
        removed, except logs that the error names, and data stored elsewhere.
        """
        starting = [each for each in self.services.values() if not each.is_running]
        self.healthy = [name for name, each in self.services.items() if each not in starting]
        for each in starting:
            each.refuse_taken_ports()
        new = [each for each in starting if not each.folder.exists()]
        made = [each for each in (self.folder, *self.folder.parents) if not each.exists()]
        state = self.folder / STATE_FILE
        before = state.read_text() if state.exists() else None
        try:
            self._write(starting)
            self._start([*starting], timeout_s)
        except BaseException as error:
            for each in starting:
                each.kill()
            if len(starting) == len(self.services):
                self._tether.end()
            for each in new:
                remove(each.folder, unless_in=str(error))
            if before is None:
                state.unlink(missing_ok=True)
            else:
                write_private(state, before)
            below = [Path(path) for path, _, _ in os.walk(self.folder, topdown=False)]
            remove_empty([*below[:-1], *made])
            raise

    def stop(self) -> list[str]:
        """End all services. Return the names of those that had to be killed."""
        killed = stop_all(self.services)
        self._tether.end()
        return killed

    def kill(self) -> None:
        """Kill all services with SIGKILL, and wait until they have ended."""
        for each in self.services.values():
            each.kill()
        self._tether.end()

    @abstractmethod
    def _write(self, starting: Sequence[Service]) -> None:
        """Write the files that these services read at their start, and the state of all."""

    def _start(self, waiting: list[Service], timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        asked: list[Service] = []
        while waiting or asked:
            for service in [each for each in waiting if {*each.plan.depends_on} <= {*self.healthy}]:
                self._say(f"{service.name}: starts at {service.host}")
                service.start()
                waiting.remove(service)
                asked.append(service)
            time.sleep(self.asked_each_s)
            for service in [*asked]:
                if service.has_started(deadline_s, timeout_s):
                    asked.remove(service)
                    self.healthy.append(service.name)
                    self._say(f"{service.name}: healthy")


def found(
    folder: Path, services: str, read: Callable[[Path], State]
) -> tuple[dict[str, Service], str]:
    """The services started below a folder, and what is wrong with the state, if it is damaged.

    If it is damaged, returns everything in folders that match `services`, so that it can be ended.
    """
    pattern = folder / services
    try:
        return read(folder).services(pattern.parent), ""
    except LaunchFailed as damage:
        folders = sorted(pattern.parent.glob(f"{pattern.name}/"))
        return {each.name: Service(Plan(each.name), each) for each in folders}, damage.message


def stop_all(services: Mapping[str, Service]) -> list[str]:
    """End services, each before its dependencies. Return the names of those that had to be killed.

    Services of one level end concurrently, so that their drains take only as long as the longest.
    """
    left = dict(services)
    killed: list[str] = []
    while left:
        needed = {other for each in left.values() for other in each.plan.depends_on}
        # Cycles are impossible, but a file edited by hand must not prevent the end.
        level = [each for name, each in left.items() if name not in needed] or [*left.values()]
        for each in level:
            each.begin_stop()
        for each in level:
            if not each.finish_stop():
                killed.append(each.name)
            del left[each.name]
    return killed


def _environment_of(own: Mapping[str, str]) -> dict[str, str]:
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return {**inherited, "PYTHONUNBUFFERED": "1", **own}
