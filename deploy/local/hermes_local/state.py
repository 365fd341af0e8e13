"""What a cluster's folder remembers: its id, where its brokers listen, for whom it was made."""

import base64
import dataclasses
import json
import os
import shlex
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hermes_local.failures import LaunchFailed
from hermes_local.ports import free_ports
from hermes_local.settings import Place

STATE_FILE = "cluster.json"


class StateDamaged(LaunchFailed):
    """What a cluster's folder remembers of it cannot be used."""

    def __init__(self, path: Path, reason: str) -> None:
        name, data = shlex.quote(path.parent.name), shlex.quote(str(path.parent.parent))
        super().__init__(
            f"{path} is damaged ({reason}); put it back from a copy, or end the cluster and "
            f"forget its data: hermes kafka down --delete-data --name {name} --data {data}"
        )
        self.path = path


@dataclass(frozen=True)
class State:
    """One cluster. `scram_user`: its mechanism and name; "" without."""

    cluster_id: str
    places: list[Place]
    scram_user: str

    @classmethod
    def read(cls, folder: Path) -> "State | None":
        """What `write` left there; None where no cluster was started. Raises LaunchFailed."""
        path = folder / STATE_FILE
        try:
            found = msgspec.json.decode(path.read_bytes(), type=cls)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, msgspec.DecodeError) as error:
            raise StateDamaged(path, str(error)) from error
        if [place.node_id for place in found.places] != [*range(1, len(found.places) + 1)]:
            raise StateDamaged(path, "its brokers are not numbered from 1")
        if not all(0 < port < 65_536 for place in found.places for port in place.ports):
            raise StateDamaged(path, "it names a port that cannot be")
        if not found.places:
            raise StateDamaged(path, "it names no broker")
        return found

    def write(self, folder: Path) -> None:
        """Remember it. Raises LaunchFailed."""
        write_private(folder / STATE_FILE, json.dumps(dataclasses.asdict(self), indent=1) + "\n")


def new_cluster_id() -> str:
    """Of the form that Kafka takes: 16 bytes in base64 without padding."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # Kafka refuses ids that begin like an option.
        if not text.startswith("-"):
            return text


def places_of(
    known: State | None, brokers: int, host: str, ports: Sequence[int] | None, folder: Path
) -> list[Place]:
    """Where each broker listens: as told, else as last time, else on free ports.

    `ports` are those of the brokers, or those and the controllers'. Raises LaunchFailed.
    """
    given = list(ports or [])
    if given and len(given) not in (brokers, 2 * brokers):
        raise LaunchFailed(
            f"ports: {len(given)} for {brokers} brokers; give one for each, or two: those of the "
            "brokers, then those of the controllers"
        )
    if len(set(given)) != len(given):
        raise LaunchFailed("ports: one is there twice")
    if known is None:
        free = free_ports(3 * brokers, host)
        chosen = (given + free[len(given) : 2 * brokers])[: 2 * brokers]
        return [
            Place(at + 1, host, chosen[at], chosen[brokers + at], free[2 * brokers + at])
            for at in range(brokers)
        ]
    if len(known.places) != brokers:
        raise LaunchFailed(
            f"{folder}: it holds a cluster of {len(known.places)} brokers, not {brokers}; "
            "use that number, or another folder"
        )
    if not given:
        return known.places
    controllers = given[brokers:] or [place.controller_port for place in known.places]
    return [
        Place(place.node_id, host, port, controller, place.internal_port)
        for place, port, controller in zip(known.places, given, controllers, strict=False)
    ]


def write_private(path: Path, text: str) -> None:
    """Write it whole or not at all, readable by its owner only: it may hold a password."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        partial.rename(path)
    except OSError as error:
        raise LaunchFailed(f"{path} cannot be written: {error.strerror}") from error
