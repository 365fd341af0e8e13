"""The floor of HTTP: the frontend's listener with a gateway that answers 201 at once, until killed.

python benchmarks/publishing/empty_app.py PORT
"""

import gc
import sys
from types import SimpleNamespace
from typing import Any, cast

import trio

from hermes_actors.config import FrontendConfig
from hermes_actors.publisher.answers import Answer
from hermes_actors.publisher.edges.server import FrontendServer
from hermes_actors.publisher.frontend import Frontend
from hermes_actors.runtime import guest
from hermes_actors.runtime.clock import SystemClock


class EmptyGateway:
    """Answers each publish at once, so that only the HTTP server is measured."""

    security = None
    drain = SimpleNamespace(is_leaving=False)

    def admit(self, *_: Any) -> Answer:
        """As `Gateway.admit`."""
        return Answer(201)


async def serve(port: int) -> None:
    """Serve; the first line of output is the port."""
    frontend = SimpleNamespace(
        gateway=EmptyGateway(),
        batches=None,
        pages=None,
        clock=SystemClock(),
        config=FrontendConfig(port=port),
    )
    server = FrontendServer(cast("Frontend", frontend))
    await guest.call(server.start)
    gc.collect()
    gc.freeze()
    print(server.port, flush=True)
    await trio.sleep_forever()


if __name__ == "__main__":
    guest.run(serve, int(sys.argv[1]))
