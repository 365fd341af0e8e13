"""A broker's configuration for one machine, with fast starts and quick detection of faults."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from hermes_local.failures import LaunchFailed
from hermes_local.lifecycle import Plan

LISTENERS = CLIENTS, CONTROLLER, BROKERS = "CLIENTS", "CONTROLLER", "BROKERS"
"""Each broker's listeners. BROKERS is for the brokers themselves, without proxy or password."""


def defaults(brokers: int) -> dict[str, str]:
    """The settings that differ from Kafka's defaults, in a cluster of this number of brokers."""
    replicas = min(3, brokers)
    in_sync = 2 if replicas == 3 else 1
    return {
        "auto.create.topics.enable": "false",
        "unclean.leader.election.enable": "false",
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(in_sync),
        # Our largest topic setting, plus the overhead of a record.
        "message.max.bytes": "4194304",
        # Small internal topics: their partitions cost start time and files.
        "offsets.topic.num.partitions": "4",
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.num.partitions": "2",
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(in_sync),
        "group.initial.rebalance.delay.ms": "0",
        # A killed broker is detected after seconds, not half a minute.
        "broker.session.timeout.ms": "6000",
        "broker.heartbeat.interval.ms": "1000",
        "replica.lag.time.max.ms": "5000",
        # Retention runs within seconds.
        "log.retention.check.interval.ms": "5000",
        "log.segment.delete.delay.ms": "1000",
        # Threads and buffers for a few clients; the cleaner's buffer is 128 MiB by default.
        "num.network.threads": "2",
        "num.io.threads": "4",
        "background.threads": "2",
        "log.cleaner.dedupe.buffer.size": "8388608",
    }


def broker_settings(
    node_id: int,
    plans: Sequence[Plan],
    folder: Path,
    *,
    settings: Mapping[str, str],
    client_protocol: str = "PLAINTEXT",
    advertised: str = "",
) -> dict[str, str]:
    """server.properties of the broker with this number; `settings` override the defaults.

    `plans` are those of all brokers, by number, each with the ports of its listeners CLIENTS,
    CONTROLLER and BROKERS. If `advertised` (host:port) is given, clients are told that address.
    Raises LaunchFailed.
    """
    data = str(folder / "data")
    if "," in data:
        raise LaunchFailed(f"{data}: Kafka's data cannot be in a folder with a comma in its name")
    own = plans[node_id - 1]
    addresses = {
        name: f"{own.host}:{port}" for name, port in zip(LISTENERS, own.ports, strict=True)
    }
    # Controllers are found through the voters, the other listeners through the advertised
    # addresses.
    told = {CLIENTS: advertised or addresses[CLIENTS], BROKERS: addresses[BROKERS]}
    protocols = {**dict.fromkeys(LISTENERS, "PLAINTEXT"), CLIENTS: client_protocol}
    structure = {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(
            f"{number}@{each.host}:{each.ports[1]}" for number, each in enumerate(plans, start=1)
        ),
        "listeners": _pairs(addresses, "://"),
        "advertised.listeners": _pairs(told, "://"),
        "listener.security.protocol.map": _pairs(protocols, ":"),
        "inter.broker.listener.name": BROKERS,
        "controller.listener.names": CONTROLLER,
        "log.dirs": data,
    }
    taken = sorted(set(structure) & set(settings))
    if taken:
        raise LaunchFailed(f"settings.{taken[0]}: the launcher sets it itself; leave it out")
    return {**defaults(len(plans)), **settings, **structure}


def rendered(settings: Mapping[str, str]) -> str:
    """The text of a .properties file; any characters are allowed."""
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in settings.items())


def _pairs(values: Mapping[str, str], sign: str) -> str:
    return ",".join(f"{name}{sign}{value}" for name, value in values.items())


def _escaped(text: str) -> str:
    # The format allows Latin-1 and UTF-16 escapes, like JSON's.
    return re.sub(r"[=:#! ]", r"\\\g<0>", json.dumps(text)[1:-1])
