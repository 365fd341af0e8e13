"""A broker's configuration files: settings for one machine, where starts and faults are quick."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from hermes_local.failures import LaunchFailed

Port = Annotated[int, msgspec.Meta(gt=0, lt=65_536)]
CLIENTS, BROKERS, CONTROLLER = "CLIENTS", "BROKERS", "CONTROLLER"


@dataclass(frozen=True)
class BrokerAddress:
    """One combined broker and controller: its number and where it listens.

    `internal_port` is where brokers speak to each other, in plain text.
    """

    node_id: int
    host: str
    port: Port
    controller_port: Port
    internal_port: Port

    @property
    def ports(self) -> tuple[int, int, int]:
        """All of them."""
        return self.port, self.controller_port, self.internal_port


def defaults(brokers: int) -> dict[str, str]:
    """Return the settings that differ from Kafka's own defaults in a cluster of so many brokers."""
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
    place: BrokerAddress,
    places: Sequence[BrokerAddress],
    folder: Path,
    *,
    settings: Mapping[str, str],
    client_protocol: str = "PLAINTEXT",
    advertised: str | None = None,
) -> dict[str, str]:
    """server.properties of the broker at `place`; `settings` win over the defaults.

    Clients are told `advertised` (host:port) instead of where it listens. Raises LaunchFailed.
    """
    data = str(folder / "data")
    if "," in data:
        raise LaunchFailed(f"{data}: Kafka's data cannot lie in a folder with a comma in its name")
    # A listener for the brokers themselves, which no proxy and no password stands before.
    listeners = {
        CLIENTS: place.port,
        BROKERS: place.internal_port,
        CONTROLLER: place.controller_port,
    }
    told = {
        CLIENTS: advertised or f"{place.host}:{place.port}",
        BROKERS: f"{place.host}:{place.internal_port}",
    }
    protocols = {**dict.fromkeys(listeners, "PLAINTEXT"), CLIENTS: client_protocol}
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
        "inter.broker.listener.name": BROKERS,
        "controller.listener.names": CONTROLLER,
        "log.dirs": data,
    }
    taken = sorted(set(structure) & set(settings))
    if taken:
        raise LaunchFailed(f"settings.{taken[0]}: the launcher sets it itself; leave it out")
    return {**defaults(len(places)), **settings, **structure}


def rendered(settings: Mapping[str, str]) -> str:
    """The text of a .properties file, of any characters."""
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in settings.items())


def _escaped(text: str) -> str:
    # The format's reader takes Latin-1 and UTF-16 escapes, which JSON's are.
    return re.sub(r"[=:#! ]", r"\\\g<0>", json.dumps(text)[1:-1])
