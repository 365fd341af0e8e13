"""Kafka without Docker: clusters of KRaft brokers as plain Java processes on this machine."""

import base64
import shlex
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import msgspec

from hermes_local import jars
from hermes_local import settings as written
from hermes_local.failures import LaunchFailed
from hermes_local.files import write_private
from hermes_local.java import java_command
from hermes_local.lifecycle import Group, Plan, Service, State
from hermes_local.ports import free_ports
from hermes_local.probe import live_brokers
from hermes_local.processes import Tether

FAST_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Less compilation and fewer threads, for tests that start many brokers for little work."""
FULL_SPEED = ("-XX:+UseG1GC",)
"""As Kafka's own scripts choose, for measurements and long-running brokers."""
_LOGGING = Path(__file__).with_name("log4j2.properties")


class Broker(Service):
    """A combined broker and controller in a cluster with this number of `brokers`."""

    def __init__(
        self, plan: Plan, folder: Path, tether: Tether | None, node_id: int, brokers: int
    ) -> None:
        super().__init__(plan, folder, tether)
        self.node_id = node_id
        self.port, _, self._internal_port = plan.ports
        self._ids = set(range(1, brokers + 1))

    @property
    def address(self) -> str:
        """host:port for clients."""
        return f"{self.host}:{self.port}"

    def health(self) -> str:
        """Empty if it answers and knows all brokers of its cluster, so that topics can
        be created.
        """
        alive = live_brokers(self.host, self._internal_port)
        if alive is None:
            return "it does not answer"
        return "" if self._ids <= {*alive} else f"it has only brokers {alive}"


class Cluster(Group):
    """Brokers that are also the controllers. Their data is in `folder`.

    `brokers` and `ports` (one per broker) default to those of the last run, else to 1 and free
    ports. `settings` override `settings.defaults`. `advertised` are the addresses (host:port, one
    per broker) that clients are told, for brokers behind a proxy. `client_protocol` is that of the
    listener CLIENTS, whose keys and log-ins are in `settings`; `scram_users` are added, in
    StorageTool's format, when the folder is created. With `is_tethered` (the default) the brokers
    die with this process, however it ends. As a context manager it starts and stops the cluster.
    """

    def __init__(
        self,
        folder: Path,
        *,
        brokers: int | None = None,
        ports: Sequence[int] = (),
        settings: Mapping[str, str] = MappingProxyType({}),
        heap_mb: int = 512,
        client_protocol: str = "PLAINTEXT",
        scram_users: Sequence[str] = (),
        advertised: Sequence[str] = (),
        jvm_options: Sequence[str] = FAST_START,
        is_tethered: bool = True,
    ) -> None:
        super().__init__(folder, is_tethered=is_tethered)
        self._settings = dict(settings)
        self._client_protocol = client_protocol
        self._scram_users = tuple(scram_users)
        self._advertised = list(advertised)
        self._jvm_options = (f"-Xmx{heap_mb}m", *jvm_options)
        self._plans = _plans(self.folder, brokers, ports)
        self.brokers = [
            Broker(plan, self.folder / plan.name, self._held_by, node_id, len(self._plans))
            for node_id, plan in enumerate(self._plans, start=1)
        ]
        self.services = {each.name: each for each in self.brokers}

    @property
    def bootstrap_servers(self) -> list[str]:
        """host:port of each broker for clients."""
        return self._advertised or [broker.address for broker in self.brokers]

    def _write(self, starting: Sequence[Service]) -> None:
        cluster_id = _cluster_id(self.folder)
        for broker, address in zip(self.brokers, self.bootstrap_servers, strict=True):
            wanted = written.broker_settings(
                broker.node_id,
                self._plans,
                broker.folder,
                settings=self._settings,
                client_protocol=self._client_protocol,
                advertised=address,
            )
            words = kafka_words(
                broker.folder, wanted, cluster_id, self._jvm_options, self._scram_users
            )
            broker.plan = msgspec.structs.replace(broker.plan, words=words)
        State({each.name: each for each in self._plans}).write(self.folder)


def down_command(folder: Path) -> str:
    """The command that ends the cluster of a folder, and with --delete-data deletes it."""
    name, data = shlex.quote(folder.name), shlex.quote(str(folder.parent))
    return f"hermes kafka down --name {name} --data {data}"


def read_state(folder: Path) -> State:
    """The cluster that was started in a folder. Raises LaunchFailed if the state is damaged."""
    return State.read(folder, f"{down_command(folder)} --delete-data")


def kafka_words(
    folder: Path,
    settings: Mapping[str, str],
    cluster_id: str,
    jvm_options: Sequence[str],
    scram_users: Sequence[str] = (),
) -> tuple[str, ...]:
    """Write a broker's settings. Return the command that formats its data if necessary
    and runs it.
    """
    properties = folder / "server.properties"
    write_private(properties, written.rendered(settings))
    java = (
        # A broker that exits is better than one that is half dead.
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


def _cluster_id(folder: Path) -> str:
    """The id of a folder's cluster in Kafka's format: 16 bytes in base64.

    It matters only at the first start of each broker, which stores it with its data.
    """
    name = uuid.uuid5(uuid.NAMESPACE_URL, folder.as_uri())
    # Kafka rejects ids that look like an option.
    return base64.urlsafe_b64encode(name.bytes).decode().rstrip("=").replace("-", "_")


def _plans(folder: Path, brokers: int | None, ports: Sequence[int]) -> list[Plan]:
    """The brokers with their ports: as given, else as in the last run, else one broker with free
    ports.

    Raises LaunchFailed.
    """
    known = read_state(folder).plans
    count = brokers or len(known) or 1
    if known and len(known) != count:
        raise LaunchFailed(
            f"{folder}: it holds a cluster of {len(known)} brokers, not {count}; "
            "use that number, or another folder"
        )
    if len(ports) not in (0, count):
        raise LaunchFailed(f"ports: {len(ports)} for {count} brokers; give one for each")
    # The ports of all brokers' first listeners, then of all second ones, and so on.
    before = [each.ports[at] for at in range(len(written.LISTENERS)) for each in known.values()]
    all_ports = [*ports, *(before or free_ports(3 * count))[len(ports) :]]
    return [
        Plan(f"broker-{at + 1}", "127.0.0.1", tuple(all_ports[at::count])) for at in range(count)
    ]
