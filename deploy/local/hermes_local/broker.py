"""One Kafka broker as a process of its own, also one that another shell has started."""

import contextlib
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from hermes_local.failures import LaunchFailed
from hermes_local.jvm import FAST_START, java_arguments
from hermes_local.leftovers import prune
from hermes_local.locks import remove_empty
from hermes_local.ports import is_free
from hermes_local.probe import live_brokers
from hermes_local.processes import ProcessId
from hermes_local.settings import Place

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
_POLL_S = 0.05
_REASON = re.compile(r"^(?:Caused by: |\[?[\w.$]*(?:Exception|Error): )")


class Broker:
    """One combined broker and controller. All its files lie in `folder`.

    `started` is called with each process that it starts. Methods that wait have bounds and raise
    LaunchFailed. A `Cluster` makes its brokers; it also writes what they need before they start.
    """

    def __init__(
        self,
        place: Place,
        folder: Path,
        *,
        probe_port: int,
        heap_mb: int,
        jvm_options: Sequence[str],
        started: Callable[[ProcessId], None] = lambda _: None,
    ) -> None:
        self.place = place
        self.node_id = place.node_id
        self.host = place.host
        self.port = place.port
        self.folder = folder
        self._probe_port = probe_port
        self._heap_mb = heap_mb
        self._jvm_options = tuple(jvm_options)
        self._started = started
        self._child: subprocess.Popen[bytes] | None = None

    @classmethod
    def found(cls, folder: Path) -> "list[Broker]":
        """The brokers below a cluster's folder, to look at and to end; where they listen is not
        known.
        """
        return [
            cls(
                Place(int(each.name.removeprefix("broker-")), "", 0, 0, 0),
                each,
                probe_port=0,
                heap_mb=0,
                jvm_options=(),
            )
            for each in sorted(folder.glob("broker-[1-9]"))
            if each.is_dir()
        ]

    def __repr__(self) -> str:
        return f"Broker({self.node_id}, {self.address}, {self.folder})"

    @property
    def address(self) -> str:
        """host:port for clients."""
        return f"{self.host}:{self.port}"

    @property
    def process(self) -> ProcessId | None:
        """Its running (or paused) process, whoever started it."""
        try:
            pid, began = self._pid_file.read_text().split()
            known = ProcessId(int(pid), int(began))
        except (FileNotFoundError, ValueError):
            return None
        return known if known.is_running else None

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        process = self.process
        return process.pid if process else None

    @property
    def is_running(self) -> bool:
        """Whether there is a process; a paused one counts."""
        return self.process is not None

    @property
    def state(self) -> str:
        """running, paused, or down."""
        process = self.process
        if process is None:
            return "down"
        with contextlib.suppress(OSError):
            stat = Path(f"/proc/{process.pid}/stat").read_text()
            return "paused" if stat.rpartition(")")[2].split()[0] == "T" else "running"
        return "down"

    @property
    def log_path(self) -> Path:
        """Its warnings and errors."""
        return self.folder / "broker.log"

    @property
    def console_path(self) -> Path:
        """What Java itself says, and Kafka before it has a log."""
        return self.folder / "console.log"

    @property
    def is_formatted(self) -> bool:
        """Whether its data folder belongs to a cluster already."""
        return (self.folder / "data" / "meta.properties").is_file()

    @property
    def rss_mb(self) -> float:
        """The memory that it holds now, in MiB; 0 if it does not run."""
        with contextlib.suppress(OSError):
            found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
            return int(found[1]) / 1_024 if found else 0.0
        return 0.0

    def format(self, cluster_id: str, scram_user: str | None = None) -> None:
        """Make its data folder a part of this cluster; nothing happens if it is already."""
        if self.is_formatted:
            return
        command = [
            *self._java("kafka.tools.StorageTool", FAST_START),
            "format",
            f"--cluster-id={cluster_id}",
            f"--config={self.properties}",
        ]
        if scram_user is not None:
            command.append(f"--add-scram={scram_user}")
        try:
            answer = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                stdin=subprocess.DEVNULL,
                timeout=READY_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise LaunchFailed(
                f"broker {self.node_id}: not formatted within {READY_TIMEOUT_S:.0f} s"
            ) from error
        if answer.returncode != 0:
            lines = (answer.stderr + answer.stdout).strip().splitlines() or ["no word"]
            lines[0] = lines[0].removeprefix('Exception in thread "main" ')
            raise LaunchFailed(
                f"broker {self.node_id}: {self.folder} was not formatted: {lines[0]}"
            )

    def is_shown_in(self, message: str) -> bool:
        """Whether the message sends its reader to a log of this broker."""
        return str(self.log_path) in message or str(self.console_path) in message

    def forget(self, *, keeps_logs: bool) -> None:
        """Remove what it was given and has stored; it does not run."""
        logs = {self.console_path, *self.folder.glob(f"{self.log_path.name}*")}
        own = {self.properties, self.folder / "log4j2.properties", self._pid_file}
        for each in (self.folder / "data", *sorted(own | (set() if keeps_logs else logs))):
            prune(each)
        remove_empty([self.folder])

    def check_ports(self) -> None:
        """Raises LaunchFailed if it does not run and another process listens on its ports."""
        if self.is_running:
            return
        for port in sorted({self.port, self.place.controller_port, self._probe_port}):
            if not is_free(port, self.host):
                raise LaunchFailed(
                    f"broker {self.node_id}: port {port} of {self.host} is taken by another "
                    "process; end that one, or choose another port"
                )

    def start(self) -> None:
        """Start its process, or leave the one that runs; `wait_ready` waits until it serves."""
        if self.is_running:
            return
        self.check_ports()
        command = [*self._java("kafka.Kafka", self._jvm_options), str(self.properties)]
        with self.console_path.open("wb") as console:
            self._child = subprocess.Popen(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                # Ctrl-C in a terminal is for the program that started it.
                start_new_session=True,
            )
        process = ProcessId.of(self._child.pid)
        self._started(process)
        self._pid_file.write_text(f"{process.pid} {process.began}\n")

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S, *, beside: Sequence[int] = ()) -> None:
        """Wait until it serves clients, knows itself and the brokers `beside` it to be alive.

        Then topics can be created. A process that ended meanwhile is reported at once.
        """
        wanted = {self.node_id, *beside}
        deadline_s = time.monotonic() + timeout_s
        while True:
            alive = live_brokers(self.host, self._probe_port)
            if alive is not None and wanted <= set(alive):
                return
            if not self.is_running:
                raise LaunchFailed(f"broker {self.node_id} ended while it started: {self._why()}")
            if time.monotonic() > deadline_s:
                state = "does not answer" if alive is None else f"knows only brokers {alive}"
                raise LaunchFailed(
                    f"broker {self.node_id} {state} {timeout_s:.0f} s after its start; "
                    f"see {self.log_path}"
                )
            time.sleep(_POLL_S)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """End it in an orderly way; False if it had to be killed, because the time was over."""
        self.begin_stop()
        return self.finish_stop(timeout_s)

    def begin_stop(self) -> None:
        """Ask it to end, and do not wait."""
        if (process := self.process) is not None:
            process.send(signal.SIGTERM)
            # A paused process takes the request only when it goes on.
            process.send(signal.SIGCONT)

    def finish_stop(self, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """Wait for the end that `begin_stop` asked for, as `stop` does."""
        process = self.process
        is_orderly = process is None or process.wait_ended(timeout_s)
        if not is_orderly:
            self.kill()
        self._ended()
        return is_orderly

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone; nothing if it does not run."""
        if (process := self.process) is not None:
            process.send(signal.SIGKILL)
            if not process.wait_ended(STOP_TIMEOUT_S):
                raise LaunchFailed(f"broker {self.node_id}: process {process.pid} does not end")
        self._ended()

    def pause(self) -> None:
        """SIGSTOP: its connections stay, and nothing answers."""
        self._send(signal.SIGSTOP)
        deadline_s = time.monotonic() + STOP_TIMEOUT_S
        while self.state == "running" and time.monotonic() < deadline_s:
            time.sleep(_POLL_S / 10)

    def resume(self) -> None:
        """SIGCONT: it goes on."""
        self._send(signal.SIGCONT)

    @property
    def _pid_file(self) -> Path:
        return self.folder / "pid"

    @property
    def properties(self) -> Path:
        """Its settings, as Kafka reads them."""
        return self.folder / "server.properties"

    def _java(self, main: str, options: Sequence[str]) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}"
        return java_arguments(main, self._heap_mb, [*options, logging])

    def _send(self, signal_number: int) -> None:
        process = self.process
        if process is None:
            raise LaunchFailed(f"broker {self.node_id} does not run")
        process.send(signal_number)

    def _ended(self) -> None:
        if self._child is not None:
            self._child.wait(STOP_TIMEOUT_S)
            self._child = None
        self._pid_file.unlink(missing_ok=True)

    def _why(self) -> str:
        """The last exception that its files tell of, else the last line."""
        lines: list[tuple[str, Path]] = []
        for path in (self.log_path, self.console_path):
            with contextlib.suppress(OSError):
                text = path.read_text(errors="replace")
                lines += [(line, path) for line in text.splitlines()[-200:]]
        reasons = [each for each in lines if _REASON.match(each[0])] or lines[-1:]
        line, path = reasons[-1] if reasons else ("no word", self.console_path)
        return f"{line.strip().rstrip('.')}; see {path}"
