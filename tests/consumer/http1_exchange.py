"""The HTTP/1.1 sender over real sockets, and a scripted server."""

import asyncio  # noqa: TID251 -- the server under the sender lives on the host loop
from contextlib import asynccontextmanager

import trio

from hermes_actors.consumer.recipients.endpoint import parse_endpoint
from hermes_actors.consumer.senders.connecting import Resolver
from hermes_actors.consumer.senders.http1.pool import PoolLimits
from hermes_actors.consumer.senders.http1.sender import open_http1_sender
from hermes_actors.runtime import guest
from tests.consumer.http_doubles import LOCAL, probed, pushed

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Server:
    """A TCP server that answers the n-th request of a connection as `script(n, request)` says:
    bytes, or None to close. Closes after `close_after` answers.
    """

    def __init__(self, script, close_after=None):
        self.script = script
        self.close_after = close_after
        self.requests = []
        self.connections = 0

    async def _serve(self, reader, writer):
        self.connections += 1
        number = 0
        try:
            while self.close_after is None or number < self.close_after:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
                body = await reader.readexactly(length)
                self.requests.append((head, body))
                answer = self.script(number, body)
                if answer is None:
                    break
                writer.write(answer)
                await writer.drain()
                number += 1
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def start(self, tls=None):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self):
        self._server.close()


def run(main, host="asyncio"):
    async def with_limit():
        with trio.fail_after(20):
            await main()
        # Closed transports report that to the loop later.
        await guest.call(asyncio.sleep, 0.05)

    guest.run(with_limit, host=host)


@asynccontextmanager
async def served(
    script,
    *,
    tls=None,
    close_after=None,
    client_tls=None,
    guard=LOCAL,
    names=None,
    host="localhost",
    **limits,
):
    """`names`: the test's name server, host → addresses."""
    server = Server(script, close_after)
    await guest.call(server.start, tls)
    resolver = None
    if names is not None:
        loop = asyncio.get_running_loop()
        resolver = Resolver(loop.call_soon_threadsafe, loop.time, look_up=names)
    try:
        async with open_http1_sender(
            PoolLimits(**limits), guard=guard, tls=client_tls, resolver=resolver
        ) as sender:
            yield server, Client(sender, server.port, "https" if tls else "http", host)
    finally:
        await guest.call(server.stop)


class Client:
    """Pushes to one endpoint, one after the other."""

    def __init__(self, sender, port, scheme="http", host="localhost"):
        self.sender = sender
        self.route = parse_endpoint(f"{scheme}://{host}:{port}/in", "lane").resolve(b"")

    async def probe(self):
        return await probed(self.sender, self.route)

    async def push(self, body=b"hello", timeout_ms=5_000):
        return await pushed(self.sender, self.route, timeout_ms, b"A: b\r\n", body)
