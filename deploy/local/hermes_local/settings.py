"""A broker's configuration files: settings for one machine, where starts and faults are quick."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hermes_local.failures import LaunchFailed
from hermes_local.security import Security

CLIENTS, BROKERS, CONTROLLER = "CLIENTS", "BROKERS", "CONTROLLER"


@dataclass(frozen=True)
class Place:
    """One combined broker and controller: its number and where it listens.

    `internal_port` is where brokers speak to each other if clients need a listener of their own.
    """

    node_id: int
    host: str
    port: int
    controller_port: int
    internal_port: int

    @property
    def ports(self) -> tuple[int, int, int]:
        """All of them."""
        return self.port, self.controller_port, self.internal_port


def defaults(brokers: int) -> dict[str, str]:
    """What differs from Kafka's own defaults in a cluster of so many brokers."""
    replicas = min(3, brokers)
    in_sync = 2 if replicas == 3 else 1
    return {
        "auto.create.topics.enable": "false",
        "unclean.leader.election.enable": "false",
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(in_sync),
        # The largest topic setting of ours, and what a record adds to its value.
        "message.max.bytes": "4194304",
        # Small inner topics: their partitions cost start time and files.
        "offsets.topic.num.partitions": "4",
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.num.partitions": "2",
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(in_sync),
        "share.coordinator.state.topic.num.partitions": "2",
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": str(in_sync),
        "group.initial.rebalance.delay.ms": "0",
        # A killed broker is found out after seconds, not half a minute.
        "broker.session.timeout.ms": "6000",
        "broker.heartbeat.interval.ms": "1000",
        "replica.lag.time.max.ms": "5000",
        # Retention acts within seconds.
        "log.retention.check.interval.ms": "5000",
        "log.segment.delete.delay.ms": "1000",
        # Threads and buffers for a few clients; the cleaner's buffer is 128 MiB by default.
        "num.network.threads": "2",
        "num.io.threads": "4",
        "background.threads": "2",
        "log.cleaner.dedupe.buffer.size": "8388608",
    }


def broker_settings(
    place: Place,
    places: Sequence[Place],
    folder: Path,
    *,
    settings: Mapping[str, str],
    security: Security | None = None,
    advertised: str | None = None,
) -> dict[str, str]:
    """server.properties of the broker at `place`; `settings` win over the defaults.

    Clients are told `advertised` (host:port) instead of where it listens. Raises LaunchFailed.
    """
    data = str(folder / "data")
    if "," in data:
        raise LaunchFailed(f"{data}: Kafka's data cannot lie in a folder with a comma in its name")
    protocols = {CLIENTS: security.protocol if security else "PLAINTEXT", CONTROLLER: "PLAINTEXT"}
    listeners = {CLIENTS: place.port, CONTROLLER: place.controller_port}
    told = {CLIENTS: advertised or f"{place.host}:{place.port}"}
    if has_internal_listener(security, advertised is not None):
        protocols[BROKERS] = "PLAINTEXT"
        listeners[BROKERS] = place.internal_port
        told[BROKERS] = f"{place.host}:{place.internal_port}"
    structure = {
        "process.roles": "broker,controller",
        "node.id": str(place.node_id),
        "controller.quorum.voters": ",".join(
            f"{each.node_id}@{each.host}:{each.controller_port}" for each in places
        ),
        "listeners": ",".join(f"{name}://{place.host}:{port}" for name, port in listeners.items()),
        "advertised.listeners": ",".join(f"{name}://{address}" for name, address in told.items()),
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}" for name, protocol in protocols.items()
        ),
        "inter.broker.listener.name": BROKERS if BROKERS in listeners else CLIENTS,
        "controller.listener.names": CONTROLLER,
        "log.dirs": data,
    }
    taken = sorted(set(structure) & set(settings))
    if taken:
        raise LaunchFailed(f"settings.{taken[0]}: the launcher sets it itself; leave it out")
    secured = security.settings(CLIENTS) if security else {}
    return {**defaults(len(places)), **settings, **secured, **structure}


def has_internal_listener(security: Security | None, is_advertised: bool) -> bool:
    """Whether brokers need a way to each other that clients do not take."""
    return is_advertised or (security is not None and security.protocol != "PLAINTEXT")


def rendered(settings: Mapping[str, str]) -> str:
    """The text of a .properties file, of any characters."""
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in settings.items())


def logging_settings(folder: Path) -> str:
    """log4j2.properties: warnings and worse into broker.log, which is bounded."""
    return rendered(
        {
            "status": "error",
            "appender.file.type": "RollingFile",
            "appender.file.name": "file",
            "appender.file.fileName": str(folder / "broker.log").replace("$", "$$"),
            "appender.file.filePattern": str(folder / "broker.log.%i").replace("$", "$$"),
            "appender.file.layout.type": "PatternLayout",
            "appender.file.layout.pattern": "%d{ISO8601} %p %m (%c)%n",
            "appender.file.policies.type": "Policies",
            "appender.file.policies.size.type": "SizeBasedTriggeringPolicy",
            "appender.file.policies.size.size": "10MB",
            "appender.file.strategy.type": "DefaultRolloverStrategy",
            "appender.file.strategy.max": "2",
            "rootLogger.level": "warn",
            "rootLogger.appenderRef.file.ref": "file",
        }
    )


def _escaped(text: str) -> str:
    special = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    special |= {each: f"\\{each}" for each in "=:#! "}
    plain = "".join(special.get(each, each) for each in text)
    # The format's reader takes Latin-1; everything else goes as UTF-16 escapes.
    return "".join(
        each if each.isascii() else "".join(f"\\u{unit:04x}" for unit in _utf16(each))
        for each in plain
    )


def _utf16(character: str) -> list[int]:
    encoded = character.encode("utf-16-be")
    return [int.from_bytes(encoded[at : at + 2], "big") for at in range(0, len(encoded), 2)]
