"""Three subscribers in one process: A takes all, B fails one first attempt in ten, C is slow.

    python sinks.py DIRECTORY

Prints one JSON line when ready; writes DIRECTORY/A.ndjson, B.ndjson and C.ndjson until SIGTERM.
"""

import json
import sys
from pathlib import Path

import trio

from hermes_actors.cli.connection.http_server import HttpServer
from hermes_actors.cli.sink.server import Journal, Sink, SinkRules
from hermes_actors.runtime.clock import SystemClock
from hermes_actors.runtime.signals import stop_on_signal

RULES = {
    "A": SinkRules(),
    "B": SinkRules(fail_first_percent=10),
    "C": SinkRules(delay_ms=20),
}


async def main(directory: Path) -> None:
    """Serve until SIGTERM; what was taken is in the files when this returns."""
    clock = SystemClock()
    servers: list[HttpServer] = []

    def drain() -> None:
        for server in servers:
            server.drain()

    ready = []
    async with trio.open_nursery() as files:
        await files.start(stop_on_signal, drain)
        async with trio.open_nursery() as serving:
            for name, rules in RULES.items():
                path = directory / f"{name}.ndjson"
                journal = Journal(path)
                await files.start(journal.run)
                listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
                port = listeners[0].socket.getsockname()[1]
                server = HttpServer(Sink(rules, clock.now_ms, journal).respond)
                servers.append(server)
                await serving.start(server.serve, listeners)
                url = f"http://127.0.0.1:{port}/{name}"
                ready.append({"name": name, "url": url, "file": str(path)})
            print(json.dumps({"ready": True, "sinks": ready}), flush=True)
        files.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]))
