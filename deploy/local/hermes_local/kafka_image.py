"""The image apache/kafka run from Kafka's jars: its environment variables, understood.

The image turns KAFKA_SOME_NAME into some.name (two underscores are one, three a dash). What says
where the broker listens and stores is checked and taken over; the rest is passed on as settings.
"""

import re
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hermes_local.composefile import Healthcheck, ServiceSpec
from hermes_local.failures import LaunchFailed
from hermes_local.interpolation import ComposeWrong
from hermes_local.kafka import Broker, Cluster
from hermes_local.probe import live_brokers
from hermes_local.processes import ProcessId
from hermes_local.runnable import Service

KAFKA_IMAGE = "apache/kafka"
_HEALTH_TOOL = "/opt/kafka/bin/kafka-broker-api-versions.sh"
_HEAP_MB_DEFAULT = 1_024
_POLL_S = 0.02
# For a look from another shell.
_ANSWERS = (
    "import sys; from hermes_local.probe import live_brokers; "
    "sys.exit(0 if live_brokers(sys.argv[1], int(sys.argv[2])) else 'it does not answer')"
)
# Taken over here; the launcher of Kafka writes them itself.
_STRUCTURE = {
    "KAFKA_ADVERTISED_LISTENERS",
    "KAFKA_CONTROLLER_LISTENER_NAMES",
    "KAFKA_CONTROLLER_QUORUM_VOTERS",
    "KAFKA_INTER_BROKER_LISTENER_NAME",
    "KAFKA_LISTENERS",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP",
    "KAFKA_LOG_DIRS",
    "KAFKA_NODE_ID",
    "KAFKA_PROCESS_ROLES",
}


@dataclass(frozen=True)
class KafkaPlan:
    """One combined broker and controller, as its service describes it."""

    port: int
    controller_port: int
    cluster_id: str
    log_dirs: str
    heap_mb: int = _HEAP_MB_DEFAULT
    settings: Mapping[str, str] = field(default_factory=dict)


def plan_of(spec: ServiceSpec) -> KafkaPlan:
    """What the service's environment asks for. Raises ComposeWrong for what is not run here."""
    given = dict(spec.environment)
    place = f"services.{spec.name}.environment"

    def need(name: str) -> str:
        if name not in given:
            raise ComposeWrong(f"{place}.{name}: is missing")
        return given[name]

    def refuse_unless(holds: bool, name: str, expected: str) -> None:
        if not holds:
            raise ComposeWrong(
                f"{place}.{name}: '{given.get(name)}': this launcher runs one plain broker that is "
                f"its own controller, and expects {expected}"
            )

    roles = set(need("KAFKA_PROCESS_ROLES").split(","))
    refuse_unless(roles == {"broker", "controller"}, "KAFKA_PROCESS_ROLES", "broker,controller")
    node_id = need("KAFKA_NODE_ID")
    refuse_unless(node_id == "1", "KAFKA_NODE_ID", "1")
    ports = dict(re.findall(r"(\w+)://[^,:]*:(\d+)", need("KAFKA_LISTENERS")))
    controller = need("KAFKA_CONTROLLER_LISTENER_NAMES")
    brokers = [name for name in ports if name != controller]
    refuse_unless(
        controller in ports and len(brokers) == 1,
        "KAFKA_LISTENERS",
        "one listener for clients and one for the controller",
    )
    protocols = dict(
        each.split(":", 1) for each in need("KAFKA_LISTENER_SECURITY_PROTOCOL_MAP").split(",")
    )
    refuse_unless(
        set(protocols) == set(ports) and set(protocols.values()) == {"PLAINTEXT"},
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP",
        "PLAINTEXT for each listener",
    )
    client = brokers[0]
    advertised = f"{client}://{spec.name}:{ports[client]}"
    refuse_unless(
        need("KAFKA_ADVERTISED_LISTENERS") == advertised, "KAFKA_ADVERTISED_LISTENERS", advertised
    )
    voters = f"{node_id}@{spec.name}:{ports[controller]}"
    refuse_unless(
        need("KAFKA_CONTROLLER_QUORUM_VOTERS") == voters, "KAFKA_CONTROLLER_QUORUM_VOTERS", voters
    )
    heap = re.search(r"-Xmx(\d+)([mMgG])", given.get("KAFKA_HEAP_OPTS", ""))
    heap_mb = _HEAP_MB_DEFAULT
    if heap is not None:
        heap_mb = int(heap[1]) * (1_024 if heap[2] in "gG" else 1)
    settings = {}
    for name, value in given.items():
        if name in _STRUCTURE or name in ("CLUSTER_ID", "KAFKA_HEAP_OPTS"):
            continue
        if not name.startswith("KAFKA_"):
            raise ComposeWrong(f"{place}.{name}: is not known to this launcher")
        settings[setting_of(name)] = value
    return KafkaPlan(
        int(ports[client]),
        int(ports[controller]),
        need("CLUSTER_ID"),
        need("KAFKA_LOG_DIRS"),
        heap_mb,
        settings,
    )


def setting_of(variable: str) -> str:
    """The name of the setting that a KAFKA_… variable of the image stands for."""
    name = variable.removeprefix("KAFKA_").lower()
    return re.sub(r"_{1,3}", lambda match: {1: ".", 2: "_", 3: "-"}[len(match[0])], name)


class KafkaProcess(Service):
    """A service of the image apache/kafka: one broker, run from Kafka's jars."""

    def __init__(
        self, spec: ServiceSpec, address: str, folder: Path, volumes: Mapping[str, Path]
    ) -> None:
        super().__init__(spec, address, folder)
        self.plan = plan_of(spec)
        if self.plan.log_dirs not in volumes:
            raise ComposeWrong(
                f"services.{spec.name}.environment.KAFKA_LOG_DIRS: '{self.plan.log_dirs}' is not "
                "where a named volume is mounted, so its data would be lost"
            )
        if spec.healthcheck is not None:
            _refuse_other_check(spec, self.plan.port)
        self.check = Healthcheck(
            (sys.executable, "-c", _ANSWERS, address, str(self.plan.port)), timeout_s=10.0
        )
        self._cluster = Cluster(
            volumes[self.plan.log_dirs],
            host=address,
            ports=[self.plan.port, self.plan.controller_port],
            settings=self.plan.settings,
            heap_mb=self.plan.heap_mb,
            cluster_id=self.plan.cluster_id,
            # The topology holds on to all that it starts.
            is_tethered=False,
        )
        self.log_path = self.broker.log_path
        self._first: threading.Thread | None = None
        self._fault = ""

    @property
    def broker(self) -> Broker:
        """The one broker."""
        return self._cluster.brokers[0]

    @property
    def logs(self) -> tuple[Path, ...]:
        """The files that it writes of itself."""
        return self.broker.log_path, self.broker.console_path

    @property
    def process(self) -> ProcessId | None:
        """Its process while it runs."""
        return self.broker.process

    def start(self) -> None:
        """Start the broker on the data it had; it is formatted before its first start."""
        if self.is_running:
            raise ComposeWrong(f"{self.name}: runs already")
        if self._first is None:
            # In a thread, so that several Kafkas are formatted at the same time.
            self._first = threading.Thread(target=self._start_cluster, daemon=True)
            self._first.start()
            self._wait_begun()
        else:
            self._wait_first()
            self.broker.start()
        process = self.process
        if process is not None:
            self.on_started(process)

    def health(self) -> str:
        """Whether the broker answers, which is what the image's tool would ask it."""
        if self._fault:
            return self._fault
        if not self.is_running:
            return "it does not run"
        alive = live_brokers(self.address, self.plan.port)
        return "" if alive and self.broker.node_id in alive else "it does not answer"

    def begin_stop(self) -> None:
        """Ask it to end, also when it is being started."""
        self._wait_begun()
        super().begin_stop()

    def finish_stop(self) -> bool:
        """Wait for its grace period; kill it then. True when it ended by itself."""
        in_time = self.broker.finish_stop(self.spec.stop_grace_s)
        self._wait_first()
        return in_time

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        self._wait_begun()
        self.broker.kill()
        self._wait_first()

    def last_words(self) -> str:
        """Why it did not start, and the end of its log."""
        return f"{self._fault}\n{super().last_words()}".strip()

    def _wait_begun(self) -> None:
        """Until a first start under way has made its process, which could not be ended before."""
        while self._first is not None and self._first.is_alive() and self.process is None:
            self._first.join(_POLL_S)

    def _wait_first(self) -> None:
        """Until the first start is over: it ends with the broker, or with its own time-out."""
        if self._first is not None:
            self._first.join()

    def _start_cluster(self) -> None:
        try:
            self._cluster.start()
        except LaunchFailed as failure:
            self._fault = failure.message


def _refuse_other_check(spec: ServiceSpec, port: int) -> None:
    """The image's own tool is not among the jars; what it asks is asked here in another way."""
    assert spec.healthcheck is not None
    expected = (_HEALTH_TOOL, "--bootstrap-server", f"{spec.name}:{port}")
    if spec.healthcheck.test != expected:
        raise ComposeWrong(
            f"services.{spec.name}.healthcheck.test: this launcher knows only {list(expected)}"
        )
