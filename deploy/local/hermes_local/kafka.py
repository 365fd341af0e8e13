"""Kafka without Docker: clusters of KRaft brokers as plain Java processes on this machine."""

import base64
import json
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

from hermes_local import settings as files
from hermes_local.archive import FAST_START, FULL_SPEED
from hermes_local.broker import READY_TIMEOUT_S, STOP_TIMEOUT_S, Broker
from hermes_local.failures import LaunchFailed
from hermes_local.ports import free_ports
from hermes_local.processes import ProcessId, Tether
from hermes_local.security import Mechanism, Security
from hermes_local.settings import Place

__all__ = [
    "FAST_START",
    "FULL_SPEED",
    "Broker",
    "Cluster",
    "LaunchFailed",
    "Mechanism",
    "Place",
    "Security",
]

_STATE = "cluster.json"
_HEAP_MB_MIN = 128


class Cluster:
    """Brokers that are each other's controllers; their data stays in `folder`.

    `ports`: one for each broker, then, if given, one for each controller; what is not given is what
    the folder had last time, else free ports. `settings` are Kafka's, over those of
    `settings.defaults`. `advertised` are the addresses (host:port, one for each broker) that
    clients are told, for brokers behind a proxy. With `is_tethered` (the default) the brokers die
    with this process, however it ends. As a context manager it starts and stops.
    """

    def __init__(
        self,
        folder: Path,
        *,
        brokers: int = 1,
        host: str = "127.0.0.1",
        ports: Sequence[int] | None = None,
        settings: Mapping[str, str] = MappingProxyType({}),
        heap_mb: int = 512,
        security: Security | None = None,
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
        self._security = security
        self._advertised = tuple(advertised)
        self._is_tethered = is_tethered
        self._tether: Tether | None = None
        known = _read_state(self.folder)
        self._id: str = known["id"] if known else _new_id()
        self._places = _places(known, brokers, host, ports, self.folder)
        self._check_user(known)
        has_internal = files.has_internal_listener(security, advertised[0] if advertised else None)
        self.brokers = [
            Broker(
                place,
                self.folder / f"broker-{place.node_id}",
                probe_port=place.internal_port if has_internal else place.port,
                heap_mb=heap_mb,
                jvm_options=jvm_options,
                started=self._hold,
            )
            for place in self._places
        ]

    @classmethod
    def found(cls, folder: Path) -> "Cluster | None":
        """The cluster that was started in this folder, to look at and to stop; None if none was."""
        known = _read_state(folder.resolve())
        if known is None:
            return None
        return cls(folder, brokers=len(known["places"]), is_tethered=False)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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

        Raises LaunchFailed; what this call started is ended then.
        """
        deadline_s = time.monotonic() + timeout_s
        running = [broker for broker in self.brokers if broker.is_running]
        self._write_files()
        scram_user = (
            self._security.scram_user if self._security and self._security.is_scram else None
        )
        with ThreadPoolExecutor(len(self.brokers)) as pool:
            list(pool.map(lambda broker: broker.format(self._id, scram_user), self.brokers))
        try:
            for broker in self.brokers:
                broker.start()
            self.wait_ready(max(1.0, deadline_s - time.monotonic()))
        except BaseException:
            for broker in self.brokers:
                if broker not in running:
                    broker.kill()
            raise

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until all running brokers serve and know each other. Raises LaunchFailed."""
        deadline_s = time.monotonic() + timeout_s
        running = [broker for broker in self.brokers if broker.is_running] or self.brokers
        for broker in running:
            left_s = max(1.0, deadline_s - time.monotonic())
            broker.wait_ready(left_s, beside=[each.node_id for each in running])

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """End all brokers at the same time, in an orderly way or, after that time, by force."""
        deadline_s = time.monotonic() + timeout_s
        for broker in self.brokers:
            broker.begin_stop()
        for broker in self.brokers:
            broker.finish_stop(max(0.0, deadline_s - time.monotonic()))
        self._let_go()

    def kill(self) -> None:
        """SIGKILL to all brokers, and wait until they are gone."""
        for broker in self.brokers:
            broker.kill()
        self._let_go()

    def _hold(self, process: ProcessId) -> None:
        if not self._is_tethered:
            return
        if self._tether is None:
            self._tether = Tether()
        self._tether.hold(process)

    def _let_go(self) -> None:
        if self._tether is not None:
            self._tether.let_go()
            self._tether = None

    def _check_user(self, known: dict[str, Any] | None) -> None:
        self._user = ""
        if self._security is not None:
            self._security.check()
            if self._security.is_scram:
                self._user = f"{self._security.mechanism} {self._security.username}"
        if known and self._user and known["scram_user"] != self._user:
            raise LaunchFailed(
                f"{self.folder}: its data was made without the user {self._user}, and SCRAM users "
                "are added when it is made; use a new folder"
            )

    def _write_files(self) -> None:
        """What each broker reads at its start, and what the next `Cluster` of this folder reads."""
        for at, broker in enumerate(self.brokers):
            texts = {
                "server.properties": files.rendered(
                    files.broker_settings(
                        broker.place,
                        self._places,
                        broker.folder,
                        settings=self._settings,
                        security=self._security,
                        advertised=self._advertised[at] if self._advertised else None,
                    )
                ),
                "log4j2.properties": files.logging_settings(broker.folder),
            }
            _make_folder(broker.folder)
            for name, text in texts.items():
                _write_private(broker.folder / name, text)
        state = {
            "id": self._id,
            "places": [[each.node_id, each.host, *_ports_of(each)] for each in self._places],
            "scram_user": self._user,
        }
        _write_private(self.folder / _STATE, json.dumps(state, indent=1) + "\n")


def _places(
    known: dict[str, Any] | None,
    brokers: int,
    host: str,
    ports: Sequence[int] | None,
    folder: Path,
) -> list[Place]:
    """Where each broker listens: as told, else as last time, else on free ports."""
    given = list(ports or [])
    if given and len(given) not in (brokers, 2 * brokers):
        raise LaunchFailed(
            f"ports: {len(given)} for {brokers} brokers; give one for each, or two: those of the "
            "brokers, then those of the controllers"
        )
    if len(set(given)) != len(given):
        raise LaunchFailed("ports: each may be used once")
    if known:
        if len(known["places"]) != brokers:
            raise LaunchFailed(
                f"{folder}: it holds a cluster of {len(known['places'])} brokers, not {brokers}; "
                "use that number, or another folder"
            )
        before = [Place(node, old_host, *three) for node, old_host, *three in known["places"]]
        if not given:
            return before
        fallback = [(each.controller_port, each.internal_port) for each in before]
    else:
        free = free_ports(3 * brokers, host)
        given = given or free[:brokers]
        fallback = [(free[brokers + at], free[2 * brokers + at]) for at in range(brokers)]
    controllers = given[brokers:] or [controller for controller, _ in fallback]
    return [
        Place(at + 1, host, given[at], controllers[at], fallback[at][1]) for at in range(brokers)
    ]


def _ports_of(place: Place) -> tuple[int, int, int]:
    return place.port, place.controller_port, place.internal_port


def _new_id() -> str:
    # Kafka writes its 16 bytes in base64 without padding; its tools take one that begins with
    # a dash for an option.
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def _read_state(folder: Path) -> dict[str, Any] | None:
    path = folder / _STATE
    try:
        state: dict[str, Any] = json.loads(path.read_text())
        if not {"id", "places", "scram_user"} <= state.keys():
            raise ValueError("keys are missing")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError) as error:
        raise LaunchFailed(
            f"{path} cannot be read: {error}; delete the folder if its data is not needed"
        ) from error
    return state


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LaunchFailed(
            f"{folder} cannot be made: {error.strerror}; choose another folder for the data"
        ) from error


def _write_private(path: Path, text: str) -> None:
    """Write it whole, or not at all, readable by its owner only: it may hold a password."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        partial.rename(path)
    except OSError as error:
        raise LaunchFailed(f"{path} cannot be written: {error.strerror}") from error
