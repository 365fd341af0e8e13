"""The services of a compose file as local processes: `Topology` starts, watches and ends them.

Kafka is run from its jars, our image by this interpreter, both as they would be in their
containers but for names, addresses and paths (`rewriting.py`). Pictures and collectors are skipped.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from hermes_local import composefile, dockerfile
from hermes_local.compose_state import Record, Saved, State
from hermes_local.composefile import ComposeFile, Healthcheck, ServiceSpec
from hermes_local.interpolation import ComposeWrong
from hermes_local.kafka_image import KAFKA_IMAGE, KafkaProcess
from hermes_local.ports import is_free
from hermes_local.processes import ProcessId, Tether
from hermes_local.rewriting import NETWORK_DEFAULT, Rewriting, addresses
from hermes_local.runnable import PROGRAMS, Command, DidNotStart, NodeProcess, Service, program_of

COMPOSE_FILE = Path(__file__).resolve().parents[2] / "compose.yaml"
"""The topology that is shipped."""
SKIPPED_IMAGES = (
    "otel/opentelemetry-collector",
    "prom/prometheus",
    "grafana/grafana",
)
"""Not run here: what looks at the topology, which works without."""
START_TIMEOUT_S = 180.0
_POLL_S = 0.1


class Topology:
    """The wanted services of a compose file and what they depend on; none named: all.

    Everything it writes lies below `data`: named volumes, logs, rewritten configuration, its state.
    `variables` are put into the file (none: those of the environment); `overrides` adds environment
    variables to single services. With `is_tethered`, what was started dies with this process,
    however it ends. With `keeps_running`, services that were started from `data` before and still
    run are `kept`: they are neither started nor ended, and count as healthy. As a context manager
    it starts all and stops all.
    """

    def __init__(
        self,
        file: Path = COMPOSE_FILE,
        *,
        data: Path,
        network: str = NETWORK_DEFAULT,
        wanted: Sequence[str] = (),
        profiles: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
        overrides: Mapping[str, Mapping[str, str]] | None = None,
        is_tethered: bool = True,
        keeps_running: bool = False,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.file = composefile.read(file, os.environ if variables is None else variables)
        self.data = data.resolve()
        self.addresses = addresses(network, tuple(self.file.services))
        self.network = network
        self.skipped: dict[str, str] = {}
        self.services: dict[str, Service] = {}
        self._say = say
        self._is_tethered = is_tethered
        self._tether: Tether | None = None
        self._state = State(self.data)
        self._origin = str(file.resolve()), network
        running = self._found_running() if keeps_running else {}
        overrides = overrides or {}
        for name in overrides:
            if name not in self.file.services:
                raise ComposeWrong(f"overrides: there is no service '{name}'")
        for name in _chosen(self.file, wanted, profiles):
            spec = self.file.services[name]
            if spec.image.startswith(SKIPPED_IMAGES):
                self.skipped[name] = spec.image
                continue
            environment = {**spec.environment, **overrides.get(name, {})}
            spec = replace(spec, environment=environment)
            self.services[name] = self._runnable(spec, is_running=name in running)
        self.kept = [name for name in self.services if name in running]
        self.healthy: list[str] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def not_applied(self) -> list[str]:
        """Keys of the file that mean nothing to a plain process, sorted."""
        return sorted({key for each in self.services.values() for key in each.spec.not_applied})

    def start(self, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start all that are not kept, each after what it depends on; return when all are healthy.

        Raises ComposeWrong, and DidNotStart; whatever was started is ended then, and what is
        written down of the others stays.
        """
        self._check_free()
        before = self._state.saved()
        if self._is_tethered:
            self._tether = Tether()
        try:
            self._begin(before)
            self._start_all(time.monotonic() + timeout_s, timeout_s)
        except BaseException:
            self.stop()
            if before.services:
                self._state.write(before)
            raise

    def stop(self) -> list[str]:
        """End all in the opposite order; gives the names of those that had to be killed.

        Those of one level end at the same time, so that all their drains take as long as one.
        Kept ones go on.
        """
        killed: list[str] = []
        own = {name: each for name, each in self.services.items() if name not in self.kept}
        for level in _levels(own):
            for each in level:
                each.begin_stop()
            killed += [each.name for each in level if not each.finish_stop()]
        self._state.remove(own)
        if self._tether is not None:
            self._tether.let_go()
            self._tether = None
        return killed

    def client_urls(self) -> dict[str, str]:
        """What the `hermes` command reads (a variable's name) → its value for this topology.

        Of all that run from this data, the first in the file's order.
        """
        running = self._state.saved().running
        urls: dict[str, str] = {}
        for name in self.file.services:
            if name in running:
                urls = {**running[name].urls, **urls}
        return dict(sorted(urls.items()))

    def _found_running(self) -> dict[str, Record]:
        """What runs from this data. Raises ComposeWrong where it was started from something else.

        Its addresses and names would not be those of this topology.
        """
        saved = self._state.saved()
        if saved.running:
            for option, was, wanted in zip(
                ("--file", "--network"), (saved.file, saved.network), self._origin, strict=True
            ):
                if was not in ("", wanted):
                    raise ComposeWrong(
                        f"{option} {wanted}: {', '.join(saved.running)} runs from {self.data} with "
                        f"{option} {was}; use that, or `hermes compose down` first, or another "
                        "--data"
                    )
        return saved.running

    def _begin(self, before: Saved) -> None:
        """Write down what this is started from."""
        services = before.services
        if (before.file, before.network) != self._origin:
            # What has ended is not what is going to run.
            lasting = before.running.keys() | before.damaged.keys()
            services = {name: raw for name, raw in services.items() if name in lasting}
        self._state.write(Saved(services, *self._origin))

    def _runnable(self, spec: ServiceSpec, *, is_running: bool) -> Service:
        folder = self.data / "services" / spec.name
        address = self.addresses[spec.name]
        volumes = {
            mount.target: self.data / "volumes" / mount.source
            for mount in spec.mounts
            if not mount.is_bind
        }
        service: Service
        if spec.image.startswith(KAFKA_IMAGE):
            service = KafkaProcess(spec, address, folder, volumes)
        elif spec.build is not None:
            service = self._node(spec, address, folder, volumes, writes=not is_running)
        else:
            raise ComposeWrong(
                f"services.{spec.name}.image: '{spec.image}' is not known to this launcher; "
                f"it runs {KAFKA_IMAGE} and images with a build section of ours, and skips "
                f"{', '.join(SKIPPED_IMAGES)}"
            )
        service.on_started = lambda process: self._started(service, process)
        return service

    def _node(
        self,
        spec: ServiceSpec,
        address: str,
        folder: Path,
        volumes: Mapping[str, Path],
        *,
        writes: bool,
    ) -> NodeProcess:
        place = f"services.{spec.name}"
        assert spec.build is not None
        image = dockerfile.read(spec.build.dockerfile)[-1]
        binds = {mount.target: Path(mount.source) for mount in spec.mounts if mount.is_bind}
        copies = {target: folder / "files" / target.lstrip("/") for target in binds}
        scratch = {
            target: folder / "tmpfs" / target.lstrip("/")
            for target in spec.tmpfs
            if target != "/tmp"
        }
        baked = {target: spec.build.context / source for target, source in image.copied.items()}
        paths = {**baked, **volumes, **copies, **scratch}
        rewriting = Rewriting(self.addresses, address, paths)
        if writes:
            for target, source in binds.items():
                rewriting.copy(source, copies[target])
            for each in (*volumes.values(), *scratch.values()):
                each.mkdir(parents=True, exist_ok=True)
        entrypoint = image.words("ENTRYPOINT") if spec.entrypoint is None else spec.entrypoint
        # As in Docker: an entry point given by the service leaves the image's command behind.
        default = image.words("CMD") if spec.entrypoint is None else ()
        words = (*entrypoint, *(default if spec.command is None else spec.command))
        command = Command(
            program_of(tuple(map(rewriting.text, words)), PROGRAMS, f"{place}.entrypoint"),
            {name: rewriting.text(value) for name, value in spec.environment.items()},
        )
        return NodeProcess(spec, address, folder, command, _check(spec, rewriting))

    def _started(self, service: Service, process: ProcessId) -> None:
        if self._tether is not None:
            self._tether.hold(process)
        self._state.add(Record.of(service, process))

    def _start_all(self, deadline_s: float, timeout_s: float) -> None:
        self.healthy = []
        waiting = [each for name, each in self.services.items() if name not in self.kept]
        unhealthy: dict[str, tuple[Service, float]] = {}
        while waiting or unhealthy:
            for service in list(waiting):
                if self._may_start(service, unhealthy, waiting):
                    self._say(f"{service.name}: starts at {service.address}")
                    service.start()
                    waiting.remove(service)
                    unhealthy[service.name] = service, 0.0
            # One check at a time, each service at most once a second: checks are processes too.
            for name, (service, asked_s) in list(unhealthy.items()):
                if time.monotonic() < asked_s + service.check_interval_s:
                    continue
                if not service.health():
                    del unhealthy[name]
                    self.healthy.append(name)
                    self._say(f"{name}: healthy")
                    continue
                unhealthy[name] = service, time.monotonic()
                if not service.is_running:
                    raise DidNotStart(
                        f"{name} ended:\n{service.last_words()}\nits log: {service.log_path}"
                    )
            if unhealthy and time.monotonic() > deadline_s:
                service, _ = next(iter(unhealthy.values()))
                raise DidNotStart(
                    f"{', '.join(unhealthy)}: not healthy after {timeout_s:.0f} s; "
                    f"{service.name}: {service.health()}\n{service.last_words()}\n"
                    f"its log: {service.log_path}"
                )
            time.sleep(_POLL_S)

    def _may_start(
        self, service: Service, unhealthy: Mapping[str, object], waiting: Sequence[Service]
    ) -> bool:
        for name, condition in service.spec.depends_on.items():
            if name in self.skipped:
                continue
            if self.services[name] in waiting:
                return False
            if condition == "service_healthy" and name in unhealthy:
                return False
        return True

    def _check_free(self) -> None:
        """Raises ComposeWrong when a service's port is taken."""
        for name, service in self.services.items():
            for port in service.ports if name not in self.kept else ():
                if not is_free(port, service.address):
                    raise ComposeWrong(
                        f"{service.name}: {service.address}:{port} is taken; is it up already, or "
                        "another topology? `hermes compose down` ends it, "
                        "--network 127.0.2.0/24 avoids it"
                    )


def _chosen(file: ComposeFile, wanted: Sequence[str], profiles: Sequence[str]) -> list[str]:
    active = [
        name
        for name, spec in file.services.items()
        if not spec.profiles or "*" in profiles or set(spec.profiles) & set(profiles)
    ]
    return composefile.in_order(file.services, wanted or active)


def _check(spec: ServiceSpec, rewriting: Rewriting) -> Healthcheck | None:
    if spec.healthcheck is None:
        return None
    words = tuple(map(rewriting.text, spec.healthcheck.test))
    place = f"services.{spec.name}.healthcheck.test"
    return replace(spec.healthcheck, test=program_of(words, PROGRAMS, place))


def _levels(services: Mapping[str, Service]) -> list[list[Service]]:
    """First what nothing depends on, then what only that depends on, and so on."""
    left = dict(services)
    levels: list[list[Service]] = []
    while left:
        needed = {other for each in left.values() for other in each.spec.depends_on}
        levels.append([each for name, each in left.items() if name not in needed])
        left = {name: each for name, each in left.items() if name in needed}
    return levels
