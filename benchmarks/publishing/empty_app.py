"""The floor of HTTP: an app that reads the body and answers 201, until killed.

python benchmarks/publishing/empty_app.py granian|hypercorn PORT
"""

import gc
import sys
from typing import Any

import trio

from hermes_actors.config import FrontendConfig
from hermes_actors.publisher.edges.granian import GranianServer
from hermes_actors.publisher.edges.hypercorn import HypercornServer
from hermes_actors.runtime import guest
from hermes_actors.runtime.clock import SystemClock


class EmptyApp:
    """What the HTTP server alone costs."""

    async def __rsgi__(self, scope: Any, exchange: Any) -> None:
        await exchange()
        exchange.response_empty(201, [("content-length", "0")])

    async def serve(self, scope: Any, receive: Any, send: Any, close: Any) -> None:
        """One request over hypercorn."""
        while (await receive()).get("more_body"):
            pass
        headers = [(b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


async def serve(http_server: str, port: int) -> None:
    """Serve; the port is the first line of the output."""
    config = FrontendConfig(port=port)
    server: GranianServer | HypercornServer
    if http_server == "granian":
        server = GranianServer(EmptyApp(), config)
    else:
        server = HypercornServer(EmptyApp(), config, SystemClock())
    await guest.call(server.start)
    gc.collect()
    gc.freeze()
    print(server.port, flush=True)
    await trio.sleep_forever()


if __name__ == "__main__":
    guest.run(serve, sys.argv[1], int(sys.argv[2]))
