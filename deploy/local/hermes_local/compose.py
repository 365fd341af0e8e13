"""The services of a compose file as local processes: `Topology` starts, watches and ends them.

Kafka is run from its jars, the project's own image by this interpreter, both as they would be in
their containers but for names, addresses and paths (`rewriting.py`). Pictures and collectors are
skipped.
"""

import os
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Self

import msgspec

from hermes_actors import config
from hermes_local import composefile
from hermes_local.composefile import NOT_APPLIED, ServiceSpec
from hermes_local.failures import LaunchFailed
from hermes_local.files import make_folder, read_state, remove_empty, write_private
from hermes_local.kafka import FAST_START, kafka_words
from hermes_local.lifecycle import Group, Plan, Service
from hermes_local.rewriting import NETWORK_DEFAULT, Rewriting, addresses

COMPOSE_FILE = Path(__file__).resolve().parents[2] / "compose.yaml"
"""The topology that is shipped."""
SKIPPED_IMAGES = ("otel/opentelemetry-collector", "prom/prometheus", "grafana/grafana")
"""Not run here: what looks at the topology, which works without."""
NODE_IMAGE, KAFKA_IMAGE = "hermes-actors:", "apache/kafka:"
NODE_CONFIG = "/etc/hermes/node.toml"
NODE_WORDS = (sys.executable, "-m", "hermes_actors.cli", "node", "--config")
"""The command of the project's own image, with the path of its configuration."""
HEALTHCHECK = "/opt/hermes/healthcheck.py"
CHECKS = {
    "python": (sys.executable,),
    "/opt/kafka/bin/kafka-broker-api-versions.sh": (sys.executable, "-m", "hermes_local.probe"),
}
"""The programs of health checks, as they are run here."""
START_TIMEOUT_S = 180.0
STATE_FILE = "state.json"


class TopologyState(msgspec.Struct, frozen=True):
    """All that was started below a data folder, and from what file and network."""

    file: str = ""
    network: str = ""
    plans: dict[str, Plan] = {}

    @classmethod
    def read(cls, data: Path) -> "TopologyState":
        """Return the state as it was written last, empty if it never was. Raises LaunchFailed."""
        way_out = f"`hermes compose down --data {data}` ends what runs and removes it"
        return read_state(data / STATE_FILE, cls, way_out) or cls()

    def write(self, data: Path) -> None:
        """Write down all; an empty one leaves no file. Raises LaunchFailed."""
        if self.plans:
            write_private(data / STATE_FILE, msgspec.json.encode(self).decode())
        else:
            (data / STATE_FILE).unlink(missing_ok=True)

    def without(self, names: Collection[str]) -> "TopologyState":
        """The same without these services."""
        left = {name: plan for name, plan in self.plans.items() if name not in names}
        return TopologyState(self.file, self.network, left)

    def services(self, data: Path) -> dict[str, Service]:
        """Return the services by name, to look at and to end."""
        return {name: Service(plan, _folder(data, name)) for name, plan in self.plans.items()}


def found(data: Path) -> dict[str, Service]:
    """Return what was started below a data folder, to be ended, even without a readable state."""
    try:
        return TopologyState.read(data).services(data)
    except LaunchFailed:
        folders = sorted((data / "services").glob("*/"))
        return {each.name: Service(Plan(each.name), each) for each in folders}


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
        variables: Mapping[str, str] | None = None,
        overrides: Mapping[str, Mapping[str, str]] | None = None,
        is_tethered: bool = True,
        keeps_running: bool = False,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.file = file.resolve()
        self.specs = composefile.read(file, os.environ if variables is None else variables)
        self.data = data.resolve()
        self.addresses = addresses(network, tuple(self.specs))
        self.skipped: dict[str, str] = {}
        self.services: dict[str, Service] = {}
        self._network = network
        self._group = Group(self.data / STATE_FILE, is_tethered=is_tethered, say=say)
        running = self._found_running() if keeps_running else {}
        for name, own in (overrides or {}).items():
            if name not in self.specs:
                raise LaunchFailed(f"overrides: there is no service '{name}'")
            self.specs[name].environment.update(own)
        for name in composefile.in_order(self.specs, wanted or self.specs):
            spec = self.specs[name]
            if spec.image.startswith(SKIPPED_IMAGES):
                self.skipped[name] = spec.image
            else:
                plan = running.get(name) or self._plan(name, spec)
                self.services[name] = Service(plan, _folder(self.data, name), self._group.hold)
        self.kept = [name for name in self.services if name in running]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def not_applied(self) -> list[str]:
        """Keys of the file that mean nothing to a plain process, sorted."""
        specs = [self.specs[name] for name in self.services]
        return [key for key in NOT_APPLIED if any(getattr(each, key) for each in specs)]

    def start(self, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start all that are not kept, each after what it depends on; return when all are healthy.

        Raises LaunchFailed; what was started is ended then, and what was new is removed, but for
        logs that the error names, and volumes.
        """
        try:
            self._group.start([*self.services.values()], self._write_all, timeout_s)
        except BaseException:
            volumes = self.data / "volumes"
            remove_empty([*volumes.glob("*"), volumes, self.data])
            raise

    def stop(self) -> list[str]:
        """End all in the opposite order; gives the names of those that had to be killed.

        Kept ones go on.
        """
        own = {name: each for name, each in self.services.items() if name not in self.kept}
        killed = self._group.stop(own)
        TopologyState.read(self.data).without(own).write(self.data)
        return killed

    @property
    def started(self) -> list[str]:
        """The services that were started and became healthy, in that order."""
        return [name for name in self._group.healthy if name not in self.kept]

    def client_urls(self) -> dict[str, str]:
        """Return the variables that the `hermes` command reads → their values for this topology.

        Of all that run from this data, the first in the file's order.
        """
        services = TopologyState.read(self.data).services(self.data)
        urls: dict[str, str] = {}
        for name in self.specs:
            if name in services and services[name].is_running:
                urls = {**services[name].plan.urls, **urls}
        return dict(sorted(urls.items()))

    def _found_running(self) -> dict[str, Plan]:
        """Return what runs from this data. Raises LaunchFailed if it was started from something
        else.

        Its addresses and names would not be those of this topology.
        """
        saved = TopologyState.read(self.data)
        running = {
            name: each.plan for name, each in saved.services(self.data).items() if each.is_running
        }
        wanted = {
            "--file": (saved.file, str(self.file)),
            "--network": (saved.network, self._network),
        }
        for option, (was, now) in wanted.items():
            if running and was != now:
                raise LaunchFailed(
                    f"{option} {now}: {', '.join(running)} runs from {self.data} with {option} "
                    f"{was}; use that, or `hermes compose down` first, or another --data"
                )
        return running

    def _paths(self, name: str, spec: ServiceSpec) -> dict[str, tuple[Path, Path]]:
        """Return for each mount its source, and where that or its copy is found here."""
        paths = {}
        for mount in spec.volumes:
            source, target = mount.split(":")[:2]
            if source.startswith((".", "/")):
                copy = _folder(self.data, name) / "files" / target.lstrip("/")
                paths[target] = self.file.parent / source, copy
            else:
                paths[target] = (self.data / "volumes" / source,) * 2
        return paths

    def _rewriting(self, name: str, spec: ServiceSpec) -> Rewriting:
        paths = {target: here for target, (_, here) in self._paths(name, spec).items()}
        paths[HEALTHCHECK] = COMPOSE_FILE.with_name("healthcheck.py")
        return Rewriting(self.addresses, self.addresses[name], paths)

    def _plan(self, name: str, spec: ServiceSpec) -> Plan:
        place = f"services.{name}"
        if spec.command is not None:
            raise LaunchFailed(f"{place}.command: is not run here, but only the image's own")
        rewriting = self._rewriting(name, spec)
        environment = {key: rewriting.text(text) for key, text in spec.environment.items()}
        check = tuple(map(rewriting.text, spec.healthcheck.test[1:])) if spec.healthcheck else ()
        if check and check[0] not in CHECKS:
            raise LaunchFailed(
                f"{place}.healthcheck.test: '{check[0]}' is not known to this launcher; known are "
                f"{', '.join(CHECKS)}"
            )
        address = self.addresses[name]
        ports = [each.rpartition(":") for each in spec.ports]
        if spec.image.startswith(NODE_IMAGE):
            words: tuple[str, ...] = (*NODE_WORDS, rewriting.text(NODE_CONFIG))
        elif spec.image.startswith(KAFKA_IMAGE):
            words = ()
            if not Path(environment.get("KAFKA_LOG_DIRS", "")).is_relative_to(self.data):
                raise LaunchFailed(
                    f"{place}.environment.KAFKA_LOG_DIRS: is not where a named volume is mounted, "
                    "so its data would be lost"
                )
            if "CLUSTER_ID" not in environment:
                raise LaunchFailed(f"{place}.environment.CLUSTER_ID: is missing")
        else:
            raise LaunchFailed(
                f"{place}.image: '{spec.image}' is not known to this launcher; it runs "
                f"{NODE_IMAGE}… and {KAFKA_IMAGE}…, and skips {', '.join(SKIPPED_IMAGES)}"
            )
        return Plan(
            name,
            address,
            tuple(int(port) for port in [*(target for _, _, target in ports), *spec.expose]),
            words,
            environment,
            (*CHECKS[check[0]], *check[1:]) if check else (),
            float(spec.healthcheck.timeout[:-1]) if spec.healthcheck else 0.0,
            float(spec.stop_grace_period[:-1]),
            tuple(each for each in spec.depends_on if each not in self.skipped),
            {outside: f"{address}:{target}" for outside, _, target in ports},
        )

    def write(self, service: Service) -> None:
        """Write down what a service reads at its start, and make what it writes to."""
        spec, plan = self.specs[service.name], service.plan
        rewriting = self._rewriting(service.name, spec)
        for source, here in self._paths(service.name, spec).values():
            if source == here:
                make_folder(here)
            else:
                rewriting.copy(source, here)
        if spec.image.startswith(KAFKA_IMAGE):
            words = kafka_words(
                service.folder,
                kafka_settings(plan.environment),
                plan.environment["CLUSTER_ID"],
                (*FAST_START, *plan.environment.get("KAFKA_HEAP_OPTS", "").split()),
            )
            plan = msgspec.structs.replace(plan, words=words)
        else:
            urls = _client_urls(Path(plan.words[-1]), plan.environment)
            plan = msgspec.structs.replace(plan, urls=urls)
        service.plan = plan

    def _write_all(self) -> None:
        for name, service in self.services.items():
            if name not in self.kept:
                self.write(service)
        plans = {name: each.plan for name, each in self.services.items()}
        saved = TopologyState.read(self.data).plans
        TopologyState(str(self.file), self._network, {**saved, **plans}).write(self.data)


def kafka_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """A broker's settings, which the image apache/kafka takes from variables.

    KAFKA_SOME_NAME stands for some.name; two underscores for one, three for a dash.
    """
    marks = {1: ".", 2: "_", 3: "-"}
    return {
        re.sub("_{1,3}", lambda found: marks[len(found[0])], name[6:].lower()): value
        for name, value in environment.items()
        if name.startswith("KAFKA_") and name != "KAFKA_HEAP_OPTS"
    }


def _folder(data: Path, name: str) -> Path:
    return data / "services" / name


def _client_urls(path: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the URLs of the roles that a node's configuration gives it, by variable; none when the
    configuration is wrong.
    """
    try:
        node = config.load(path, environment)
    except config.ConfigError:
        # The node itself says so, where it is looked for.
        return {}
    urls = {}
    if "management" in node.roles:
        urls["HERMES_MANAGEMENT_URL"] = f"http://{node.management.host}:{node.management.port}"
    if "frontend" in node.roles:
        urls["HERMES_PUBLISH_URL"] = f"http://{node.frontend.host}:{node.frontend.port}"
    return urls
