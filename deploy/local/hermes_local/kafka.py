"""Kafka without Docker: clusters of KRaft brokers as plain Java processes on this machine."""

import base64
import contextlib
import re
import shlex
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Self

import msgspec

from hermes_local import jars
from hermes_local import settings as written
from hermes_local.failures import LaunchFailed
from hermes_local.files import read_state, write_private
from hermes_local.java import java_command
from hermes_local.lifecycle import Group, Plan, Service
from hermes_local.ports import free_ports
from hermes_local.probe import live_brokers
from hermes_local.processes import ProcessId
from hermes_local.settings import BrokerAddress

__all__ = [
    "FAST_START",
    "FULL_SPEED",
    "Broker",
    "BrokerAddress",
    "Cluster",
    "LaunchFailed",
]

FAST_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Less compiling and fewer threads: for tests, which start many brokers for little work."""
FULL_SPEED = ("-XX:+UseG1GC",)
"""As Kafka's own scripts choose: for measurements, and for a broker that stays."""
READY_TIMEOUT_S = 60.0
STATE_FILE = "cluster.json"
_HEAP_MB_MIN = 128
_LOGGING = Path(__file__).with_name("log4j2.properties")
_THREAD = 'Exception in thread "main" '
_REASON = re.compile(r"^(?:Caused by: |\[?[\w.$]*(?:Exception|Error): )")


class ClusterState(msgspec.Struct, frozen=True):
    """A cluster as its folder remembers it."""

    cluster_id: str
    places: Annotated[list[BrokerAddress], msgspec.Meta(min_length=1)]

    @classmethod
    def read(cls, folder: Path) -> "ClusterState | None":
        """Return what `write` left there; None if no cluster was started. Raises LaunchFailed."""
        name, data = shlex.quote(folder.name), shlex.quote(str(folder.parent))
        way_out = (
            "put it back from a copy, or end the cluster and forget its data: "
            f"hermes kafka down --delete-data --name {name} --data {data}"
        )
        return read_state(folder / STATE_FILE, cls, way_out)

    def write(self, folder: Path) -> None:
        """Remember it. Raises LaunchFailed."""
        text = msgspec.json.format(msgspec.json.encode(self)).decode()
        write_private(folder / STATE_FILE, text + "\n")


class Broker(Service):
    """One combined broker and controller. Methods that wait have bounds and raise LaunchFailed."""

    asked_each_s = 0.05

    def __init__(
        self,
        place: BrokerAddress,
        plan: Plan,
        folder: Path,
        started: Callable[[ProcessId], None] = lambda _: None,
    ) -> None:
        super().__init__(plan, folder, started)
        self.place = place
        self.node_id = place.node_id
        self.port = place.port
        self.log_path = folder / "console.log"
        self.beside: list[int] = []

    @classmethod
    def found(cls, folder: Path) -> "list[Broker]":
        """The brokers below a cluster's folder, to look at and to end, wherever they listen."""
        numbers = sorted(int(each.name[-1]) for each in folder.glob("broker-[1-9]"))
        return [
            cls(
                BrokerAddress(number, "", 0, 0, 0),
                Plan(f"broker {number}"),
                _folder_of(folder, number),
            )
            for number in numbers
        ]

    def __repr__(self) -> str:
        return f"Broker({self.node_id}, {self.address}, {self.folder})"

    @property
    def address(self) -> str:
        """host:port for clients."""
        return f"{self.host}:{self.port}"

    @property
    def state(self) -> str:
        """running, paused, or down."""
        process = self.process
        if process is None:
            return "down"
        return "paused" if process.is_paused else "running"

    def start(self) -> None:
        """Start its process, or leave the one that runs; it is formatted before its first start."""
        if not self.is_running:
            self.log_path.unlink(missing_ok=True)
            super().start()

    def health(self) -> str:
        """Empty when it answers, and knows itself and the brokers `beside` it to be alive.

        Then topics can be created.
        """
        alive = live_brokers(self.host, self.place.internal_port)
        if alive is None:
            return "it does not answer"
        return "" if {self.node_id, *self.beside} <= {*alive} else f"it knows only brokers {alive}"

    def last_words(self) -> str:
        """The last exception that its files tell of, else the last line."""
        lines: list[tuple[str, Path]] = []
        for path in (self.folder / "broker.log", self.log_path):
            with contextlib.suppress(OSError):
                text = path.read_text(errors="replace")
                last = [each.removeprefix(_THREAD) for each in text.splitlines()[-200:]]
                lines += [(line, path) for line in last]
        reasons = [each for each in lines if _REASON.match(each[0])] or lines[-1:]
        line, path = reasons[-1] if reasons else ("no word", self.log_path)
        return f"{line.strip().rstrip('.')}; see {path}"


class Cluster:
    """Brokers that are each other's controllers; their data stays in `folder`.

    `ports`: one for each broker, then, if given, one for each controller; else those of last time,
    else free ones. `settings` are Kafka's, over those of `settings.defaults`. `advertised` are the
    addresses (host:port, one for each broker) that clients are told, for brokers behind a proxy.
    `client_protocol` is that of the listener CLIENTS, whose keys and log-ins `settings` hold;
    `scram_users` are added, as StorageTool takes them, when the folder is made.
    With `is_tethered` (the default) the brokers die with this process, however it ends. As a
    context manager it starts and stops.
    """

    def __init__(
        self,
        folder: Path,
        *,
        brokers: int = 1,
        ports: Sequence[int] | None = None,
        settings: Mapping[str, str] = MappingProxyType({}),
        heap_mb: int = 512,
        client_protocol: str = "PLAINTEXT",
        scram_users: Sequence[str] = (),
        advertised: Sequence[str] = (),
        jvm_options: Sequence[str] = FAST_START,
        is_tethered: bool = True,
    ) -> None:
        if brokers < 1:
            raise LaunchFailed(f"brokers: {brokers}: a cluster has one or more")
        if heap_mb < _HEAP_MB_MIN:
            raise LaunchFailed(f"heap_mb: {heap_mb}: a broker needs {_HEAP_MB_MIN} or more")
        if advertised and len(advertised) != brokers:
            raise LaunchFailed(f"advertised: {len(advertised)} addresses for {brokers} brokers")
        self.folder = folder.resolve()
        self._settings = dict(settings)
        self._client_protocol = client_protocol
        self._scram_users = tuple(scram_users)
        self._advertised = tuple(advertised)
        self._group = Group(self.folder / STATE_FILE, is_tethered=is_tethered, say=lambda _: None)
        known = ClusterState.read(self.folder)
        self._state = ClusterState(
            known.cluster_id if known else _new_cluster_id(),
            _places_of(known, brokers, ports, self.folder),
        )
        self._jvm_options = (f"-Xmx{heap_mb}m", *jvm_options)
        self.brokers = [self._broker(place) for place in self._state.places]

    @classmethod
    def found(cls, folder: Path) -> "Cluster | None":
        """The cluster that was started in this folder, to look at and to stop; None if none was."""
        known = ClusterState.read(folder.resolve())
        if known is None:
            return None
        return cls(folder, brokers=len(known.places), is_tethered=False)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> list[str]:
        """host:port of each broker, as clients reach them."""
        return list(self._advertised) or [broker.address for broker in self.brokers]

    @property
    def is_running(self) -> bool:
        """Whether any broker runs."""
        return any(broker.is_running for broker in self.brokers)

    def start(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Format what is not, start what does not run, return when topics can be created.

        Raises LaunchFailed; what this call started is ended then, and what it made is removed, but
        for logs that the error names.
        """
        self._beside(self.brokers)
        self._group.start(self.brokers, self._write, timeout_s)

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until all running brokers serve and know each other. Raises LaunchFailed."""
        running = [broker for broker in self.brokers if broker.is_running]
        self._beside(running)
        for broker in running:
            broker.wait_healthy(timeout_s)

    def stop(self) -> None:
        """End all brokers at the same time, in an orderly way or, after 20 s, by force."""
        self._group.stop({broker.name: broker for broker in self.brokers})

    def kill(self) -> None:
        """SIGKILL to all brokers, and wait until they are gone."""
        for broker in self.brokers:
            broker.kill()
        self._group.let_go()

    def _broker(self, place: BrokerAddress) -> Broker:
        folder = _folder_of(self.folder, place.node_id)
        plan = Plan(
            f"broker {place.node_id}",
            place.host,
            place.ports,
        )
        return Broker(place, plan, folder, self._group.hold)

    def _write(self) -> None:
        """Write what the brokers read at their start."""
        for at, broker in enumerate(self.brokers):
            wanted = written.broker_settings(
                broker.place,
                self._state.places,
                broker.folder,
                settings=self._settings,
                client_protocol=self._client_protocol,
                advertised=self._advertised[at] if self._advertised else None,
            )
            cluster_id = self._state.cluster_id
            words = kafka_words(
                broker.folder, wanted, cluster_id, self._jvm_options, self._scram_users
            )
            broker.plan = msgspec.structs.replace(broker.plan, words=words)
        self._state.write(self.folder)

    def _beside(self, brokers: Sequence[Broker]) -> None:
        for broker in self.brokers:
            broker.beside = [each.node_id for each in brokers]


def kafka_words(
    folder: Path,
    settings: Mapping[str, str],
    cluster_id: str,
    jvm_options: Sequence[str],
    scram_users: Sequence[str] = (),
) -> tuple[str, ...]:
    """Write down a broker's settings; give what formats its data, if need be, and becomes it."""
    properties = folder / "server.properties"
    write_private(properties, written.rendered(settings))
    java = (
        # Better gone, and seen to be, than half dead.
        *(java_command(), "-XX:+ExitOnOutOfMemoryError", "-XX:-UsePerfData"),
        *(f"-Dlog4j2.configurationFile={_LOGGING}", f"-Dhermes.folder={folder}"),
        *("-cp", jars.KAFKA.classpath()),
    )
    formatting = [
        *(*java, *FAST_START, "kafka.tools.StorageTool", "format"),
        *(f"--cluster-id={cluster_id}", f"--config={properties}"),
        *(f"--add-scram={each}" for each in scram_users),
    ]
    running = [*java, *jvm_options, "kafka.Kafka", str(properties)]
    formatted = shlex.quote(f"{settings['log.dirs']}/meta.properties")
    script = f"[ -f {formatted} ] || {shlex.join(formatting)} && exec {shlex.join(running)}"
    return "sh", "-c", script


def _folder_of(folder: Path, node_id: int) -> Path:
    return folder / f"broker-{node_id}"


def _new_cluster_id() -> str:
    """Return a random id of the form that Kafka takes: 16 bytes in base64 without padding."""
    text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    # Kafka refuses ids that begin like an option.
    return text.replace("-", "_")


def _places_of(
    known: ClusterState | None, brokers: int, ports: Sequence[int] | None, folder: Path
) -> list[BrokerAddress]:
    """Return the ports of each broker: as told, else as last time, else free ones.

    Raises LaunchFailed.
    """
    given = list(ports or [])
    if given and len(given) not in (brokers, 2 * brokers):
        raise LaunchFailed(
            f"ports: {len(given)} for {brokers} brokers; give one for each, or two: those of the "
            "brokers, then those of the controllers"
        )
    if len(set(given)) != len(given):
        raise LaunchFailed("ports: one is there twice")
    if known is not None and len(known.places) != brokers:
        raise LaunchFailed(
            f"{folder}: it holds a cluster of {len(known.places)} brokers, not {brokers}; "
            "use that number, or another folder"
        )
    if known is None:
        others = free_ports(3 * brokers)
    else:
        others = [
            port for each in zip(*(at.ports for at in known.places), strict=True) for port in each
        ]
    ports = [*given, *others[len(given) :]]
    return [
        BrokerAddress(at + 1, "127.0.0.1", ports[at], ports[brokers + at], ports[2 * brokers + at])
        for at in range(brokers)
    ]
