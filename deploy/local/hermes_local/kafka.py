"""Kafka without Docker: clusters of KRaft brokers as plain Java processes on this machine."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from hermes_local import settings as files
from hermes_local.archive import prepare
from hermes_local.broker import READY_TIMEOUT_S, STOP_TIMEOUT_S, Broker
from hermes_local.failures import LaunchFailed
from hermes_local.jvm import FAST_START, FULL_SPEED
from hermes_local.locks import make_folders, remove_empty
from hermes_local.processes import ProcessId, Tether
from hermes_local.security import Mechanism, Security
from hermes_local.settings import Place
from hermes_local.state import STATE_FILE, State, new_cluster_id, places_of, write_private

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

_HEAP_MB_MIN = 128


class Cluster:
    """Brokers that are each other's controllers; their data stays in `folder`.

    `ports`: one for each broker, then, if given, one for each controller; what is not given is what
    the folder had last time, else free ports. `settings` are Kafka's, over those of
    `settings.defaults`. `cluster_id` is for a new folder (none: a new one). `advertised` are the
    addresses (host:port, one for each broker) that clients are told, for brokers behind a proxy.
    With `is_tethered` (the default) the brokers die with this process, however it ends. As a
    context manager it starts and stops.
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
        cluster_id: str = "",
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
        known = State.read(self.folder)
        if known and cluster_id not in ("", known.cluster_id):
            raise LaunchFailed(
                f"{self.folder}: it holds the cluster {known.cluster_id}, not {cluster_id}; "
                "use another folder"
            )
        self._state = State(
            known.cluster_id if known else cluster_id or new_cluster_id(),
            places_of(known, brokers, host, ports, self.folder),
            self._checked_user(known),
        )
        has_internal = files.has_internal_listener(security, bool(advertised))
        self.brokers = [
            Broker(
                place,
                self.folder / f"broker-{place.node_id}",
                probe_port=place.internal_port if has_internal else place.port,
                heap_mb=heap_mb,
                jvm_options=jvm_options,
                started=self._hold,
            )
            for place in self._state.places
        ]

    @classmethod
    def found(cls, folder: Path) -> "Cluster | None":
        """The cluster that was started in this folder, to look at and to stop; None if none was."""
        known = State.read(folder.resolve())
        if known is None:
            return None
        return cls(folder, brokers=len(known.places), is_tethered=False)

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

        Raises LaunchFailed; what this call started is ended then, and what it made is removed, but
        for logs that the error names.
        """
        running = [broker for broker in self.brokers if broker.is_running]
        for broker in self.brokers:
            broker.check_ports()
        prepare()
        before = State.read(self.folder)
        new = [broker for broker in self.brokers if not broker.is_formatted]
        made = make_folders(self.folder)
        try:
            self.format()
            for broker in self.brokers:
                broker.start()
            self._wait_ready(self.brokers, timeout_s)
        except BaseException as error:
            for broker in self.brokers:
                if broker not in running:
                    broker.kill()
            if not running:
                self._let_go()
            for broker in new:
                broker.forget(keeps_logs=broker.is_shown_in(str(error)))
            if before is not None:
                before.write(self.folder)
            else:
                (self.folder / STATE_FILE).unlink(missing_ok=True)
            remove_empty(made)
            raise

    def format(self) -> None:
        """Write what the brokers read at their start, and make their data folders if need be."""
        for at, broker in enumerate(self.brokers):
            wanted = files.broker_settings(
                broker.place,
                self._state.places,
                broker.folder,
                settings=self._settings,
                security=self._security,
                advertised=self._advertised[at] if self._advertised else None,
            )
            make_folders(broker.folder)
            write_private(broker.properties, files.rendered(wanted))
            write_private(
                broker.folder / "log4j2.properties", files.logging_settings(broker.folder)
            )
        self._state.write(self.folder)
        user = self._security.scram_user if self._security and self._security.is_scram else None
        with ThreadPoolExecutor(len(self.brokers)) as pool:
            list(pool.map(lambda each: each.format(self._state.cluster_id, user), self.brokers))

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until all running brokers serve and know each other. Raises LaunchFailed."""
        running = [broker for broker in self.brokers if broker.is_running]
        if not running:
            raise LaunchFailed(f"{self.folder}: no broker runs")
        self._wait_ready(running, timeout_s)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """End all brokers at the same time, in an orderly way or, after that time, by force."""
        stop_brokers(self.brokers, timeout_s)
        self._let_go()

    def kill(self) -> None:
        """SIGKILL to all brokers, and wait until they are gone."""
        for broker in self.brokers:
            broker.kill()
        self._let_go()

    def _wait_ready(self, brokers: Sequence[Broker], timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        for broker in brokers:
            left_s = max(1.0, deadline_s - time.monotonic())
            broker.wait_ready(left_s, beside=[each.node_id for each in brokers])

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

    def _checked_user(self, known: State | None) -> str:
        """The SCRAM user, which only a new folder can take."""
        if self._security is None:
            return known.scram_user if known else ""
        self._security.check()
        if not self._security.is_scram:
            return known.scram_user if known else ""
        user = f"{self._security.mechanism} {self._security.username}"
        if known and known.scram_user != user:
            raise LaunchFailed(
                f"{self.folder}: its data was made without the user {user}, and SCRAM users are "
                "added when it is made; use a new folder"
            )
        return user


def stop_brokers(brokers: Sequence[Broker], timeout_s: float = STOP_TIMEOUT_S) -> None:
    """End them at the same time, in an orderly way or, after that time, by force."""
    deadline_s = time.monotonic() + timeout_s
    for broker in brokers:
        broker.begin_stop()
    for broker in brokers:
        broker.finish_stop(max(0.0, deadline_s - time.monotonic()))
