"""Runs a compose file's services as local processes and reports ready as `hermes dev --json` does.

    python topology.py COMPOSE_FILE --data DIR [--network CIDR]

Prints one JSON line with the URLs of each datacentre when all are healthy; ends them at SIGTERM.
"""

import argparse
import json
import signal
import sys
from pathlib import Path

from hermes_actors.errors import HermesError
from hermes_local.compose import Topology
from hermes_local.rewriting import NETWORK_DEFAULT

PUBLISH_PORT, MANAGEMENT_PORT, KAFKA_PORT = 8080, 8090, 9092


def datacentres(topology: Topology) -> list[dict[str, object]]:
    """Name, management, frontends, consuming nodes and log of each datacentre, derived from its
    services' names.
    """
    found: list[dict[str, object]] = []
    for name, service in topology.services.items():
        role, _, dc = name.partition("-")
        if role != "management":
            continue
        frontends = [
            each.url(PUBLISH_PORT)
            for other, each in topology.services.items()
            if other.startswith(f"frontend-{dc}-")
        ]
        consumers = [
            {"node": other, "pid": each.pid}
            for other, each in topology.services.items()
            if other.startswith(f"consumers-{dc}-")
        ]
        found.append(
            {
                "dc": dc,
                "publish": frontends[0],
                "frontends": frontends,
                "management": service.url(MANAGEMENT_PORT),
                "log": f"kafka:{topology.services[f'kafka-{dc}'].host}:{KAFKA_PORT}",
                "consumers": consumers,
            }
        )
    return found


def main() -> int:
    """Start, report ready, wait for SIGTERM, end. All started processes are ended in any case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--network", default=NETWORK_DEFAULT)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with open_topology(options) as topology:
            dcs = datacentres(topology)
            print(json.dumps({"ready": True, "dcs": dcs, "data": str(options.data)}), flush=True)
            signal.pause()
    except KeyboardInterrupt:
        return 0
    except HermesError as failure:
        print(failure.message, file=sys.stderr)
        return 1
    return 0


def open_topology(options: argparse.Namespace) -> Topology:
    """The topology of the whole file."""
    return Topology(options.file, data=options.data, network=options.network, say=_say_to_stderr)


def _interrupt(*_: object) -> None:
    # A second signal must not prevent the processes from being ended.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _say_to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
