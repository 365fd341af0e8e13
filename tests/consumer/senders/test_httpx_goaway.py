"""Endpoints over HTTP/2 that end connections gracefully, as nginx, Envoy and every restart do."""

import collections

import pytest
import trio
import trio.testing
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, StreamEnded
from hyperframe.frame import GoAwayFrame

from hermes_actors.consumer.recipients.endpoint import parse_endpoint
from hermes_actors.consumer.senders.httpx.sender import open_httpx_sender
from hermes_actors.consumer.senders.sender import Failure
from tests.consumer.http_doubles import net_of, pushed, tcp


def route_to(port):
    return parse_endpoint(f"http://127.0.0.1:{port}/in", "lane").resolve(b"")


class GracefulServer:
    """Holds its answers back for a moment, and ends each connection by GOAWAY after some pushes:
    it answers those and closes. The first `refused` pushes are reset with REFUSED_STREAM.
    """

    def __init__(self, pushes_each, refused=0):
        self.pushes_each = pushes_each
        self.refused = refused
        self.handled = []
        self.connections = 0

    async def __call__(self, stream):
        self.connections += 1
        connection = H2Connection(H2Configuration(client_side=False))
        connection.initiate_connection()
        bodies, held, left = {}, [], self.pushes_each
        async with stream:
            while left:
                await stream.send_all(connection.data_to_send())
                data = None
                with trio.move_on_after(0.02 if held else 20):
                    data = await stream.receive_some()
                    if not data:
                        return
                for event in connection.receive_data(data) if data else ():
                    if isinstance(event, DataReceived):
                        bodies[event.stream_id] = bodies.get(event.stream_id, b"") + event.data
                    elif isinstance(event, StreamEnded) and self.refused:
                        self.refused -= 1
                        connection.reset_stream(event.stream_id, ErrorCodes.REFUSED_STREAM)
                    elif isinstance(event, StreamEnded) and left:
                        left -= 1
                        held.append(event.stream_id)
                if not left:
                    await stream.send_all(GoAwayFrame(0, max(held)).serialize())
                    # Pushes that are on their way meet a connection that takes no more.
                    await trio.testing.wait_all_tasks_blocked(0.01)
                if not left or not data:
                    self._answer(connection, bodies, held)
            await stream.send_all(connection.data_to_send())

    def _answer(self, connection, bodies, held):
        while held:
            stream_id = held.pop()
            self.handled.append(bodies[stream_id])
            connection.send_headers(stream_id, [(":status", "200")], end_stream=True)


@pytest.mark.parametrize("at_once", [8, 40])
async def test_a_graceful_goaway_costs_no_push_and_none_arrives_twice(at_once):
    server, outcomes = GracefulServer(5), []
    bodies = [b"%d" % number for number in range(40)]

    async def push(sender, body):
        outcomes.append(await pushed(sender, route_to(port), body=body))

    async with (
        tcp(server) as port,
        open_httpx_sender(net_of()) as sender,
        trio.open_nursery() as nursery,
    ):
        for at in range(0, 40, at_once):
            for body in bodies[at : at + at_once]:
                nursery.start_soon(push, sender, body)
            await trio.testing.wait_all_tasks_blocked(0.02)
        nursery.cancel_scope.deadline = trio.current_time() + 20
    assert [each.reason() for each in outcomes] == ["HTTP 200"] * 40
    assert collections.Counter(server.handled) == collections.Counter(bodies)
    assert server.connections >= 8


async def test_a_refused_stream_is_sent_again_at_once():
    server = GracefulServer(1, refused=2)
    async with tcp(server) as port, open_httpx_sender(net_of()) as sender:
        assert (await pushed(sender, route_to(port))).status == 200
        server.refused = 100
        outcome = await pushed(sender, route_to(port))
        assert (outcome.failure, outcome.detail) == (
            Failure.RESET,
            "the server reset the stream (HTTP/2 error 7)",
        )
    assert (len(server.handled), server.refused) == (1, 90)
