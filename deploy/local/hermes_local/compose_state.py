"""What runs of a compose file, written down so that another shell can look at it and end it."""

import signal
from pathlib import Path

import msgspec
from msgspec import Struct

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


class _Saved(Struct, frozen=True):
    services: dict[str, Record]


class State:
    """The file of records below a data folder."""

    def __init__(self, data: Path) -> None:
        self._path = data / "state.json"

    def records(self) -> dict[str, Record]:
        """The services by name, in the order of their first start. Raises ComposeWrong."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_Saved).services
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as error:
            raise ComposeWrong(
                f"{self._path}: cannot be read ({error}); end its processes by hand and remove it"
            ) from error

    def add(self, record: Record) -> None:
        """Write down a start; the file is whole at every moment."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        records = {**self.records(), record.name: record}
        new = self._path.with_suffix(".new")
        new.write_bytes(msgspec.json.format(msgspec.json.encode(_Saved(records))))
        new.replace(self._path)

    def clear(self) -> None:
        """Nothing runs any more."""
        self._path.unlink(missing_ok=True)

    def stop_all(self) -> list[str]:
        """End what still runs, dependents first; the names of those that had to be killed."""
        left = {name: each for name, each in self.records().items() if each.process.is_running}
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
        self.clear()
        return killed


def published(service: Service) -> dict[str, str]:
    """What Compose would publish → where it is found here, as host:port."""
    return {
        f"{port.host}:{port.published}": f"{service.address}:{port.target}"
        for port in service.spec.ports
        if port.published is not None
    }
