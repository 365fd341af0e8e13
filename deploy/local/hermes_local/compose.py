"""Runs the services of a compose file as local processes; a `Topology` starts, watches and ends
them.

Kafka runs from its jars, the project's own image with this interpreter. Both run as in their
containers except for names, addresses and paths (`rewriting.py`). Dashboards and collectors are
skipped.
"""

import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from hermes_local import composefile
from hermes_local.composefile import NOT_APPLIED, ServiceSpec
from hermes_local.failures import LaunchFailed
from hermes_local.files import make_folder
from hermes_local.kafka import FAST_START, kafka_words
from hermes_local.lifecycle import Group, Plan, Service, State
from hermes_local.rewriting import NETWORK_DEFAULT, Rewriting, addresses

COMPOSE_FILE = Path(__file__).resolve().parents[2] / "compose.yaml"
"""The compose file of this project."""
SKIPPED_IMAGES = ("otel/opentelemetry-collector", "prom/prometheus", "grafana/grafana")
"""Images not run here: they only observe the topology, which works without them."""
NODE_IMAGE, KAFKA_IMAGE = "hermes-actors:", "apache/kafka:"
NODE_CONFIG = "/etc/hermes/node.toml"
NODE_WORDS = (sys.executable, "-m", "hermes_actors", "node", "--config")
"""The command of the project's image; the path of its configuration follows."""
HEALTHCHECK = "/opt/hermes/healthcheck.py"
CHECKS = {
    "python": (sys.executable,),
    "/opt/kafka/bin/kafka-broker-api-versions.sh": (sys.executable, "-m", "hermes_local.probe"),
}
"""The programs in health checks, and their local replacements."""
CLIENT_PORTS = {"HERMES_MANAGEMENT_URL": 8090, "HERMES_PUBLISH_URL": 8080}
"""The variables that the `hermes` command reads, each with the port of our image that
it refers to.
"""
SERVICES = "services"
"""The folder of the services' folders, in the data folder."""


class Topology(Group):
    """The named services of a compose file and their dependencies; by default all services.

    Everything it writes is below `data`: named volumes, logs, rewritten configuration, its state.
    `variables` are substituted in the file (default: the environment). With `is_tethered`, the
    started processes die with this process, however it ends. Without, services still running from
    `data` are left alone, and count as healthy. As a context manager it starts and stops
    everything.
    """

    asked_each_s = 0.5

    def __init__(
        self,
        file: Path = COMPOSE_FILE,
        *,
        data: Path,
        network: str = NETWORK_DEFAULT,
        wanted: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
        is_tethered: bool = True,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(data, is_tethered=is_tethered, say=say)
        self.file = file.resolve()
        self.specs = composefile.read(file, os.environ if variables is None else variables)
        self.addresses = addresses(network, tuple(self.specs))
        self.skipped: dict[str, str] = {}
        self._network = network
        running = {} if is_tethered else self._running()
        for name in composefile.in_order(self.specs, wanted or self.specs):
            spec = self.specs[name]
            if spec.image.startswith(SKIPPED_IMAGES):
                self.skipped[name] = spec.image
            else:
                plan = running.get(name) or self._plan(name, spec)
                self.services[name] = Service(plan, self._folder(name), self._held_by)

    @property
    def not_applied(self) -> list[str]:
        """Keys of the file that have no meaning for a plain process, sorted."""
        specs = [self.specs[name] for name in self.services]
        return [key for key in NOT_APPLIED if any(getattr(each, key) for each in specs)]

    def client_urls(self) -> dict[str, str]:
        """The variables that the `hermes` command reads, with the values for the first service that
        has the port.
        """
        return {
            variable: each.url(port)
            for variable, port in CLIENT_PORTS.items()
            for each in reversed(self.services.values())
            if port in each.plan.ports
        }

    def _running(self) -> dict[str, Plan]:
        """The services running from this data folder. Raises LaunchFailed if they were started with
        another file or network, because then their addresses and names differ from this topology's.
        """
        saved = read_state(self.folder)
        services = saved.services(self.folder / SERVICES)
        running = {name: each.plan for name, each in services.items() if each.is_running}
        if running and (saved.file, saved.network) != (str(self.file), self._network):
            raise LaunchFailed(
                f"{', '.join(running)} runs from {self.folder} with --file {saved.file} --network "
                f"{saved.network}; use these, or `hermes compose down` first, or another --data"
            )
        return running

    def _rewriting(self, name: str, spec: ServiceSpec) -> Rewriting:
        paths = {HEALTHCHECK: COMPOSE_FILE.with_name("healthcheck.py")}
        for source, target in spec.mounts:
            if source.startswith((".", "/")):
                paths[target] = self._folder(name) / "files" / target.lstrip("/")
            else:
                paths[target] = self.folder / "volumes" / source
        return Rewriting(self.addresses, self.addresses[name], paths)

    def _folder(self, name: str) -> Path:
        return self.folder / SERVICES / name

    def _plan(self, name: str, spec: ServiceSpec) -> Plan:
        place = f"services.{name}"
        if spec.command is not None:
            raise LaunchFailed(
                f"{place}.command: is not supported; only the image's own command runs here"
            )
        rewriting = self._rewriting(name, spec)
        environment = {key: rewriting.text(text) for key, text in spec.environment.items()}
        check = tuple(map(rewriting.text, spec.healthcheck.test[1:])) if spec.healthcheck else ()
        if check and check[0] not in CHECKS:
            raise LaunchFailed(
                f"{place}.healthcheck.test: '{check[0]}' is not supported by this launcher; "
                "supported are "
                f"{', '.join(CHECKS)}"
            )
        address = self.addresses[name]
        ports = [each.rpartition(":") for each in spec.ports]
        if spec.image.startswith(NODE_IMAGE):
            words: tuple[str, ...] = (*NODE_WORDS, rewriting.text(NODE_CONFIG))
        elif spec.image.startswith(KAFKA_IMAGE):
            words = ()
            if not Path(environment.get("KAFKA_LOG_DIRS", "")).is_relative_to(self.folder):
                raise LaunchFailed(
                    f"{place}.environment.KAFKA_LOG_DIRS: is not where a named volume is mounted, "
                    "so its data would be lost"
                )
            if "CLUSTER_ID" not in environment:
                raise LaunchFailed(f"{place}.environment.CLUSTER_ID: is missing")
        else:
            raise LaunchFailed(
                f"{place}.image: '{spec.image}' is not supported by this launcher; it runs "
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
        """Write the files that a service reads at its start, and create its folders."""
        spec, plan = self.specs[service.name], service.plan
        rewriting = self._rewriting(service.name, spec)
        for source, target in spec.mounts:
            if source.startswith((".", "/")):
                rewriting.copy(self.file.parent / source, rewriting.paths[target])
            else:
                make_folder(rewriting.paths[target])
        if spec.image.startswith(KAFKA_IMAGE):
            words = kafka_words(
                service.folder,
                kafka_settings(plan.environment),
                plan.environment["CLUSTER_ID"],
                (*FAST_START, *plan.environment.get("KAFKA_HEAP_OPTS", "").split()),
            )
            service.plan = msgspec.structs.replace(plan, words=words)

    def _write(self, starting: Sequence[Service]) -> None:
        for each in starting:
            self.write(each)
        plans = {name: each.plan for name, each in self.services.items()}
        saved = read_state(self.folder).plans
        State({**saved, **plans}, str(self.file), self._network).write(self.folder)


def read_state(data: Path) -> State:
    """The services started below a data folder. Raises LaunchFailed if the state is damaged."""
    return State.read(data, f"hermes compose down --data {shlex.quote(str(data))}")


def kafka_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """A broker's settings, which the image apache/kafka takes from variables.

    KAFKA_SOME_NAME means some.name; two underscores stand for one, three for a dash.
    """
    marks = {1: ".", 2: "_", 3: "-"}
    return {
        re.sub("_{1,3}", lambda found: marks[len(found[0])], name[6:].lower()): value
        for name, value in environment.items()
        if name.startswith("KAFKA_") and name != "KAFKA_HEAP_OPTS"
    }
