"""A defect in one request costs its connection, and no other connection its time limits."""

import asyncio  # noqa: TID251 -- the listener lives on the host loop
from types import SimpleNamespace

import pytest
import uvloop

from hermes_actors.config import FrontendConfig
from hermes_actors.publisher.edges.listener import PortUnusable
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


def make_server(port=0):
    frontend = SimpleNamespace(
        clock=SystemClock(),
        config=FrontendConfig(port=port),
        batches=None,
        gateway=SimpleNamespace(security=None),
        pages=DefectivePages(),
    )
    return FrontendServer(frontend)


@pytest.mark.parametrize("new_event_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_who_listens_second_at_a_port_that_two_have_bound_is_told(new_event_loop):
    async def main():
        first = make_server()
        second = make_server(first.port)
        await first.start()
        with pytest.raises(PortUnusable, match=f"port {first.port}: another process does"):
            await second.start()
        await second.stop(0.0)
        await first.stop(0.0)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())


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
        server.connections.update({defective: None, sound: None})
        server.sweep(asyncio.get_running_loop().time())
        server.connections.clear()
        assert defective.is_aborted
        assert sound.swept_s == server.edge.now_s
        await server.stop(0.0)

    asyncio.run(main())
    assert [each.levelname for each in caplog.records] == ["ERROR"]
