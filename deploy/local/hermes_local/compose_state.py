"""What runs of a compose file, written down so that another shell can look at it and end it."""

import contextlib
import signal
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

from hermes_local.composefile import Healthcheck
from hermes_local.interpolation import ComposeWrong
from hermes_local.processes import ProcessId
from hermes_local.runnable import Service, environment_of, run_check


class Record(Struct, frozen=True):
    """One started service. `check` is its rewritten health check; [] for none."""

    name: str
    address: str
    ports: tuple[int, ...]
    published: dict[str, str]
    pid: int
    began: int
    log: str
    stop_signal: str
    stop_grace_s: float
    depends_on: tuple[str, ...]
    check: tuple[str, ...] = ()
    check_timeout_s: float = 30.0
    urls: dict[str, str] = {}
    """Of a node of ours: what the `hermes` command reads (a variable's name) → the node's URL."""

    @classmethod
    def of(cls, service: Service, process: ProcessId) -> "Record":
        """The record of a service that has just been started."""
        check = service.check
        return cls(
            name=service.name,
            address=service.address,
            ports=service.ports,
            published=published(service),
            pid=process.pid,
            began=process.began,
            log=str(service.log_path),
            stop_signal=service.spec.stop_signal,
            stop_grace_s=service.spec.stop_grace_s,
            depends_on=tuple(service.spec.depends_on),
            check=check.test if check is not None else (),
            check_timeout_s=check.timeout_s if check is not None else 30.0,
            urls=service.client_urls(),
        )

    @property
    def process(self) -> ProcessId:
        """The process, as it was when it was started."""
        return ProcessId(self.pid, self.began)

    def condition(self) -> str:
        """`healthy`, `running` (no health check), `unhealthy: why` or `ended`."""
        if not self.process.is_running:
            return "ended"
        if not self.check:
            return "running"
        check = Healthcheck(self.check, timeout_s=self.check_timeout_s)
        fault = run_check(check, environment_of({}))
        return f"unhealthy: {fault}" if fault else "healthy"

    def send_stop(self) -> None:
        """Ask it to end, also when it is paused."""
        self.process.send(signal.Signals[self.stop_signal])
        self.process.send(signal.SIGCONT)


class Saved(Struct, frozen=True):
    """All that is written down. `file` and `network`: what the services were started from."""

    services: dict[str, Raw] = {}
    file: str = ""
    network: str = ""

    @property
    def records(self) -> dict[str, Record]:
        """The services by name, in the order of their first start; not the damaged ones."""
        read = {name: _record(raw) for name, raw in self.services.items()}
        return {name: each for name, each in read.items() if isinstance(each, Record)}

    @property
    def damaged(self) -> dict[str, str]:
        """The services whose records cannot be read, and why."""
        read = {name: _record(raw) for name, raw in self.services.items()}
        return {name: each for name, each in read.items() if isinstance(each, str)}

    @property
    def running(self) -> dict[str, Record]:
        """The services whose process still is."""
        return {name: each for name, each in self.records.items() if each.process.is_running}


class State:
    """The file of records below a data folder."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self.path = data / "state.json"

    def saved(self) -> Saved:
        """What was written down last. Raises ComposeWrong."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=Saved)
        except FileNotFoundError:
            return Saved()
        except (OSError, msgspec.DecodeError) as error:
            raise ComposeWrong(
                f"{self.path} is damaged ({error}); `hermes compose down --data {self._data}` "
                "removes it if nothing runs, and names what does"
            ) from error

    def add(self, record: Record) -> None:
        """Write down a start."""
        saved = self.saved()
        raw = Raw(msgspec.json.encode(record))
        self.write(msgspec.structs.replace(saved, services={**saved.services, record.name: raw}))

    def remove(self, names: Collection[str]) -> None:
        """Forget these services."""
        saved = self.saved()
        left = {name: raw for name, raw in saved.services.items() if name not in names}
        if left:
            self.write(msgspec.structs.replace(saved, services=left))
        else:
            self.clear()

    def write(self, saved: Saved) -> None:
        """Write down all; the file is whole at every moment."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(".new")
        new.write_bytes(msgspec.json.format(msgspec.json.encode(saved)))
        new.replace(self.path)

    def clear(self) -> None:
        """Nothing runs any more."""
        self.path.unlink(missing_ok=True)

    def stop_all(self) -> tuple[list[str], list[str]]:
        """End what still runs, dependents first: the names of all, of those that were killed.

        Raises ComposeWrong when records are damaged, and processes are left that were perhaps
        theirs; the sound ones have been ended then.
        """
        try:
            saved = self.saved()
        except ComposeWrong:
            self._refuse_strays({})
            self.clear()
            return [], []
        killed = _stop(saved.running)
        if saved.damaged:
            self.remove(saved.records)
            self._refuse_strays(saved.damaged)
        self.clear()
        return list(saved.services), killed

    def _refuse_strays(self, damaged: Mapping[str, str]) -> None:
        """Nothing is ended on a guess: raises ComposeWrong that names what is left."""
        found = _at_work_below(self._data)
        if found:
            reasons = "".join(f", {name}: {reason}" for name, reason in damaged.items())
            processes = ", ".join(f"{pid} ({name})" for pid, name in found.items())
            raise ComposeWrong(
                f"{self.path} is damaged{reasons}; these processes work below {self._data}: "
                f"{processes}; end those that are services by hand, then `hermes compose down` "
                "again"
            )


def _record(raw: Raw) -> "Record | str":
    try:
        record = msgspec.json.decode(raw, type=Record)
        signal.Signals[record.stop_signal]
    except (msgspec.DecodeError, KeyError) as error:
        return str(error)
    return record


def _at_work_below(data: Path) -> dict[int, str]:
    """Processes in a service's folder, as those of services are: their names by process id."""
    folders = (data.resolve() / "services", data.resolve() / "volumes")
    found = {}
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            at = (each / "cwd").readlink()
            if any(at.is_relative_to(folder) for folder in folders):
                found[int(each.name)] = (each / "comm").read_text().strip()
    return dict(sorted(found.items()))


def _stop(running: Mapping[str, Record]) -> list[str]:
    left = dict(running)
    killed: list[str] = []
    while left:
        needed = {other for each in left.values() for other in each.depends_on}
        # A circle cannot be, but a file edited by hand must not keep this from ending.
        level = [each for name, each in left.items() if name not in needed] or [*left.values()]
        for each in level:
            each.send_stop()
        for each in level:
            if not each.process.wait_ended(each.stop_grace_s):
                each.process.send(signal.SIGKILL)
                each.process.wait_ended(each.stop_grace_s)
                killed.append(each.name)
            del left[each.name]
    return killed


def published(service: Service) -> dict[str, str]:
    """What Compose would publish → where it is found here, as host:port."""
    return {
        f"{port.host}:{port.published}": f"{service.address}:{port.target}"
        for port in service.spec.ports
        if port.published is not None
    }
