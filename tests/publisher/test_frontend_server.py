"""A defect in one request costs its connection, and no other connection its time limits."""

import asyncio  # noqa: TID251 -- the listener lives on the host loop
from types import SimpleNamespace

from hermes_actors.config import FrontendConfig
from hermes_actors.publisher.edges.server import FrontendServer
from hermes_actors.runtime.clock import SystemClock


class DefectivePages:
    def at_once(self, method, path):
        return None

    async def metrics(self):
        raise LookupError("a defect")


class Defective:
    """A connection whose sweep fails."""

    due_s = -1.0

    def __init__(self):
        self.is_aborted = False

    def sweep(self, now_s):
        raise LookupError("a defect")

    def abort(self):
        self.is_aborted = True


class Sound(Defective):
    def sweep(self, now_s):
        self.swept_s = now_s


def make_server():
    frontend = SimpleNamespace(
        clock=SystemClock(),
        config=FrontendConfig(port=0),
        batches=None,
        gateway=SimpleNamespace(security=None),
        pages=DefectivePages(),
    )
    return FrontendServer(frontend)


def test_a_page_that_fails_closes_its_connection(caplog):
    async def main():
        server = make_server()
        await server.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /status/prometheus HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        writer.close()
        await server.stop(0.0)

    asyncio.run(main())
    (told,) = caplog.records
    assert told.getMessage() == "A request failed; its connection is closed"
    assert told.exc_info is not None


def test_a_connection_whose_sweep_fails_is_closed_and_the_others_are_swept(caplog):
    async def main():
        server = make_server()
        await server.start()
        defective, sound = Defective(), Sound()
        server.listener.connections.update({defective: None, sound: None})
        server.listener.sweep(asyncio.get_running_loop().time())
        server.listener.connections.clear()
        assert defective.is_aborted
        assert sound.swept_s == server.edge.now_s
        await server.stop(0.0)

    asyncio.run(main())
    assert [each.levelname for each in caplog.records] == ["ERROR"]
