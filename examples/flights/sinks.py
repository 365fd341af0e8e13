"""Three subscribers in one process: A takes all, B fails one first attempt in ten, C is slow.

    python sinks.py DIRECTORY

Prints one JSON line when ready. Writes DIRECTORY/A.ndjson, B.ndjson and C.ndjson until SIGTERM.
"""

import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import trio

from hermes_actors.cli.sink.server import Sink, SinkRules
from hermes_actors.publisher.edges.endpoint import EndpointServer
from hermes_actors.runtime import guest
from hermes_actors.runtime.clock import SystemClock
from hermes_actors.runtime.signals import stop_on_signal

RULES = {
    "A": SinkRules(),
    "B": SinkRules(fail_first_percent=10),
    "C": SinkRules(delay_ms=20),
}


async def main(directory: Path) -> None:
    """Serve until SIGTERM. When this returns, the files have everything that was accepted."""
    clock = SystemClock()
    stopped = trio.Event()
    ready = []
    async with trio.open_nursery() as nursery, AsyncExitStack() as serving:
        await nursery.start(stop_on_signal, stopped.set)
        for name, rules in RULES.items():
            path = directory / f"{name}.ndjson"
            journal = path.open("wb", buffering=0)
            server = EndpointServer(Sink(rules, clock.now_ms, journal).respond)
            await serving.enter_async_context(server.serving())
            ready.append({"name": name, "url": server.url + name, "file": str(path)})
        print(json.dumps({"ready": True, "sinks": ready}), flush=True)
        await stopped.wait()
        await serving.aclose()
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    guest.run(main, Path(sys.argv[1]))
