"""Kafka's classes, archived once for each Java, so that brokers start a third faster.

Java writes such an archive (class data sharing) at the orderly end of a program; here, of a broker
that runs for nothing else. Without an archive everything works, only slower.
"""

import tempfile
from pathlib import Path

from hermes_local import settings as files
from hermes_local.broker import Broker
from hermes_local.failures import LaunchFailed
from hermes_local.jars import locked
from hermes_local.jvm import FAST_START, archive_path
from hermes_local.ports import free_ports
from hermes_local.processes import Tether
from hermes_local.settings import Place
from hermes_local.state import new_cluster_id, write_private

_HEAP_MB = 256
_STOP_TIMEOUT_S = 60.0


def prepare() -> None:
    """Make the archive if this Java has none; some seconds. Raises LaunchFailed."""
    path = archive_path()
    if path is None or path.exists():
        return
    try:
        with locked(path.with_suffix(".lock")):
            if not path.exists():
                _make(path)
    except OSError:
        # A cache that cannot be written to any more: then it goes without.
        return


def _make(path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="hermes-kafka-") as name:
        partial = path.with_suffix(".partial")
        try:
            _run_broker(Path(name), partial)
        except LaunchFailed:
            # Not this launch's failure. What is empty is not tried again.
            partial.touch()
        partial.rename(path)


def _run_broker(folder: Path, archive: Path) -> None:
    archive.unlink(missing_ok=True)
    port, controller_port = free_ports(2)
    place = Place(1, "127.0.0.1", port, controller_port, 0)
    tether = Tether()
    broker = Broker(
        place,
        folder,
        probe_port=port,
        heap_mb=_HEAP_MB,
        jvm_options=(*FAST_START, f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:cds=off"),
        started=tether.hold,
    )
    wanted = files.broker_settings(place, [place], folder, settings={})
    write_private(broker.properties, files.rendered(wanted))
    write_private(folder / "log4j2.properties", files.logging_settings(folder))
    try:
        broker.format(new_cluster_id())
        broker.start()
        broker.wait_ready()
        broker.stop(_STOP_TIMEOUT_S)
    finally:
        broker.kill()
        tether.let_go()
    if not archive.is_file():
        raise LaunchFailed("Java wrote no archive of Kafka's classes")
