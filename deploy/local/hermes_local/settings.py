"""A broker's configuration files: settings for one machine, where starts and faults are quick."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from hermes_local.failures import LaunchFailed
from hermes_local.lifecycle import Plan

LISTENERS = CLIENTS, CONTROLLER, BROKERS = "CLIENTS", "CONTROLLER", "BROKERS"
"""Those of each broker; BROKERS is for the brokers themselves, which no proxy and no password
stands before.
"""


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
    node_id: int,
    plans: Sequence[Plan],
    folder: Path,
    *,
    settings: Mapping[str, str],
    client_protocol: str = "PLAINTEXT",
    advertised: str = "",
) -> dict[str, str]:
    """server.properties of the broker with this number; `settings` win over the defaults.

    The `plans` are those of all brokers, by their numbers, each with the ports of its listeners
    CLIENTS, CONTROLLER and BROKERS. Clients are told `advertised` (host:port) instead of where it
    listens. Raises LaunchFailed.
    """
    data = str(folder / "data")
    if "," in data:
        raise LaunchFailed(f"{data}: Kafka's data cannot lie in a folder with a comma in its name")
    own = plans[node_id - 1]
    addresses = {
        name: f"{own.host}:{port}" for name, port in zip(LISTENERS, own.ports, strict=True)
    }
    # Controllers are found by the voters, the others by what they tell.
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
    """The text of a .properties file, of any characters."""
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in settings.items())


def _pairs(values: Mapping[str, str], sign: str) -> str:
    return ",".join(f"{name}{sign}{value}" for name, value in values.items())


def _escaped(text: str) -> str:
    # The format's reader takes Latin-1 and UTF-16 escapes, which JSON's are.
    return re.sub(r"[=:#! ]", r"\\\g<0>", json.dumps(text)[1:-1])
