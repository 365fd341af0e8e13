"""Starts, ends and pauses one process of a topology or a cluster, and asks for its health."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from hermes_local.failures import LaunchFailed
from hermes_local.files import make_folder, missing, remove, remove_empty, write_private
from hermes_local.ports import is_free
from hermes_local.processes import ProcessId, Tether

_LAST_WORDS_BYTES = 2_000
_KILLED_WITHIN_S = 30.0
_LEFT_WITHIN_S = 2.0
_PAUSED_WITHIN_S = 20.0
_POLL_S = 0.05
# What a process needs of this shell; the rest is not in a container either.
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "JAVA_HOME", "PYTHONPATH", "VIRTUAL_ENV")


class Plan(msgspec.Struct, frozen=True):
    """How a service is run. `ports` are bound at `host`; `check` exits with 0 when it is healthy.

    `published`: what Compose would publish → where it is found here. `urls`: what the `hermes`
    command reads (a variable's name) → the service's URL.
    """

    name: str
    host: str = ""
    ports: tuple[int, ...] = ()
    words: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    check: tuple[str, ...] = ()
    check_timeout_s: float = 30.0
    stop_grace_s: float = 20.0
    depends_on: tuple[str, ...] = ()
    published: dict[str, str] = {}
    urls: dict[str, str] = {}


class Service:
    """A process that may have been started by another shell: its id lies in `folder`.

    `started` is called with each process that it starts. Not safe for use by two threads at once.
    """

    asked_each_s = 1.0
    """How often its health is asked while it starts."""

    def __init__(
        self, plan: Plan, folder: Path, started: Callable[[ProcessId], None] = lambda _: None
    ) -> None:
        self.plan = plan
        self.name = plan.name
        self.host = plan.host
        self.folder = folder
        self.log_path = folder / "log"
        self._started = started
        self._child: subprocess.Popen[bytes] | None = None
        self._asked_to_end = 0

    @property
    def process(self) -> ProcessId | None:
        """The process while it runs (or is paused); None when it does not."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            pid, began = self._pid_file.read_text().split()
            known = ProcessId(int(pid), int(began))
            return known if known.is_running else None
        return None

    @property
    def pid(self) -> int | None:
        """The process id while it runs; None when it does not."""
        process = self.process
        return process.pid if process is not None else None

    @property
    def is_running(self) -> bool:
        """Whether it runs; a paused one does."""
        return self.process is not None

    @property
    def exit_code(self) -> int | None:
        """How the process that was started here ended; None before that."""
        return None if self._child is None else self._child.poll()

    @property
    def _pid_file(self) -> Path:
        return self.folder / "pid"

    def url(self, port: int) -> str:
        """The base URL of one of its ports."""
        return f"http://{self.host}:{port}"

    def start(self) -> None:
        """Start it as it was started before; returns at once. Raises LaunchFailed."""
        if self.is_running:
            raise LaunchFailed(f"{self.name}: runs already")
        make_folder(self.folder)
        with self.log_path.open("ab") as log:
            self._child = subprocess.Popen(
                self.plan.words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=_environment_of(self.plan.environment),
                # So that Ctrl-C in the terminal reaches the launcher, which asks each to drain.
                start_new_session=True,
            )
        process = ProcessId.of(self._child.pid)
        self._started(process)
        self._pid_file.write_text(f"{process.pid} {process.began}\n")

    def refuse_taken_ports(self) -> None:
        """Raises LaunchFailed when something else listens where it is to."""
        for port in self.plan.ports:
            if not is_free(port, self.host):
                raise LaunchFailed(
                    f"{self.name}: port {port} of {self.host} is taken by another process; end "
                    "that one, or choose another port or --network"
                )

    def health(self) -> str:
        """Return what is wrong with it; "" when it is healthy, or has no health check."""
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

    def wait_healthy(self, timeout_s: float = 60.0) -> None:
        """Raises LaunchFailed when it ends before, or when the time is over."""
        deadline_s = time.monotonic() + timeout_s
        while not self.has_started(deadline_s, timeout_s):
            time.sleep(_POLL_S)

    def has_started(self, deadline_s: float, timeout_s: float) -> bool:
        """True when it is healthy. Raises LaunchFailed when it has ended, and for one that is not
        at `deadline_s`, the end of the `timeout_s` that it had.
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
        """The end of its log, and where that lies."""
        words = b""
        with contextlib.suppress(OSError), self.log_path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_WORDS_BYTES))
            words = file.read()
        return f"{words.decode(errors='replace').strip()}; see {self.log_path}"

    def stop(self, timeout_s: float | None = None) -> bool:
        """Ask it to end; True when it did so within that time, else its grace period."""
        self.begin_stop()
        return self.finish_stop(timeout_s)

    def begin_stop(self) -> None:
        """Ask it to end, once: a node takes a second signal for impatience."""
        process = self.process
        if process is not None:
            # With what it has started itself: a broker's data may be being formatted.
            self._asked_to_end = process.pid
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        # A paused one takes no signal but SIGKILL until it goes on.
        self._send(signal.SIGCONT)

    def finish_stop(self, timeout_s: float | None = None) -> bool:
        """Wait for the end that `begin_stop` asked for; kill it then. True when it ended itself."""
        process = self.process
        grace_s = self.plan.stop_grace_s if timeout_s is None else timeout_s
        in_time = process is None or process.wait_ended(grace_s)
        self.kill()
        return in_time

    def kill(self) -> None:
        """SIGKILL; returns when it is gone. Raises LaunchFailed if it does not go."""
        if (process := self.process) is not None:
            process.send(signal.SIGKILL)
            if not process.wait_ended(_KILLED_WITHIN_S):
                raise LaunchFailed(f"{self.name}: process {process.pid} does not end")
        if self._child is not None:
            self._child.wait(_KILLED_WITHIN_S)
        self._kill_what_it_started(self._asked_to_end if process is None else process.pid)
        self._pid_file.unlink(missing_ok=True)

    def _kill_what_it_started(self, group: int) -> None:
        deadline_s = time.monotonic() + _LEFT_WITHIN_S
        with contextlib.suppress(ProcessLookupError, PermissionError):
            while group and time.monotonic() < deadline_s:
                os.killpg(group, signal.SIGKILL)
                time.sleep(_POLL_S / 10)
        self._asked_to_end = 0

    def pause(self) -> None:
        """SIGSTOP: it keeps its connections and does nothing. Raises LaunchFailed."""
        self._send(signal.SIGSTOP)
        process, deadline_s = self.process, time.monotonic() + _PAUSED_WITHIN_S
        while process is not None and process.is_running and not process.is_paused:
            if time.monotonic() > deadline_s:
                raise LaunchFailed(f"{self.name}: process {process.pid} is not paused")
            time.sleep(_POLL_S / 10)

    def resume(self) -> None:
        """SIGCONT: it goes on."""
        self._send(signal.SIGCONT)

    def restart(self, *, timeout_s: float = 60.0) -> None:
        """Stop it if it runs, start it, wait until it is healthy. Raises LaunchFailed."""
        self.stop()
        self.start()
        self.wait_healthy(timeout_s)

    def _send(self, signal_number: int) -> None:
        if (process := self.process) is not None:
            process.send(signal_number)


class Group:
    """Services that are started and ended together. `state` is the file that remembers them.

    With `is_tethered` they die with this process, however it ends.
    """

    def __init__(self, state: Path, *, is_tethered: bool, say: Callable[[str], None]) -> None:
        self.healthy: list[str] = []
        self._state = state
        self._is_tethered = is_tethered
        self._say = say
        self._tether: Tether | None = None

    def start(
        self, services: Sequence[Service], write: Callable[[], None], timeout_s: float
    ) -> None:
        """`write` what they read, start each after what it depends on, wait until all are healthy.

        Raises LaunchFailed; those that this call started are ended then, and what was new is
        removed, but for logs that the error names, and what is stored elsewhere.
        """
        starting = [each for each in services if not each.is_running]
        self.healthy = [each.name for each in services if each not in starting]
        for each in starting:
            each.refuse_taken_ports()
        new = [each for each in starting if not each.folder.exists()]
        made = missing(self._state.parent)
        before = self._state.read_text() if self._state.exists() else None
        try:
            write()
            self._start([*starting], timeout_s)
        except BaseException as error:
            for each in starting:
                each.kill()
            if len(starting) == len(services):
                self.let_go()
            for each in new:
                remove(each.folder, unless_in=str(error))
            if before is None:
                self._state.unlink(missing_ok=True)
            else:
                write_private(self._state, before)
            remove_empty([*(each.folder.parent for each in new), *made])
            raise

    def stop(self, services: Mapping[str, Service]) -> list[str]:
        """End them, as `stop_all`."""
        killed = stop_all(services)
        self.let_go()
        return killed

    def hold(self, process: ProcessId) -> None:
        """Let it die with this process, if that was asked for."""
        if self._is_tethered:
            self._tether = self._tether or Tether()
            self._tether.hold(process)

    def let_go(self) -> None:
        """Keep the processes that were held running when this one ends."""
        if self._tether is not None:
            self._tether.let_go()
            self._tether = None

    def _start(self, waiting: list[Service], timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        asked_s: dict[Service, float] = {}
        while waiting or asked_s:
            for service in [each for each in waiting if {*each.plan.depends_on} <= {*self.healthy}]:
                self._say(f"{service.name}: starts at {service.host}")
                service.start()
                waiting.remove(service)
                asked_s[service] = 0.0
            # One check at a time, each service at most once a second: checks are processes too.
            for service, at_s in list(asked_s.items()):
                if time.monotonic() < at_s + service.asked_each_s:
                    continue
                has_started = service.has_started(deadline_s, timeout_s)
                asked_s[service] = time.monotonic()
                if has_started:
                    del asked_s[service]
                    self.healthy.append(service.name)
                    self._say(f"{service.name}: healthy")
            time.sleep(_POLL_S)


def stop_all(services: Mapping[str, Service]) -> list[str]:
    """End them, each before what it depends on; gives the names of those that had to be killed.

    Those of one level end at the same time, so that all their drains take as long as one.
    """
    left = dict(services)
    killed: list[str] = []
    while left:
        needed = {other for each in left.values() for other in each.plan.depends_on}
        # A circle cannot be, but a file edited by hand must not keep this from ending.
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
