"""A session tells each answer once, in order, however its bytes come; and its end to who waits."""

import asyncio  # noqa: TID251 -- sessions live on the host loop
import struct

import pytest
from aiokafka.errors import KafkaConnectionError, UnsupportedVersionError
from aiokafka.protocol.admin import ApiVersionResponse_v0
from aiokafka.protocol.metadata import MetadataRequest, MetadataResponse_v0
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.log.kafka.session import Frames, Session

API_VERSIONS, METADATA, MINE = 18, 3, 0
KNOWN = [(API_VERSIONS, 0, 0), (METADATA, 0, 0), (MINE, 3, 5)]
NO_TOPICS = MetadataResponse_v0([], []).encode()


class Server:
    """Answers what aiokafka asks when it connects, and then what the test says."""

    def __init__(self):
        self.asked = []
        self.came = asyncio.Event()
        self.writer = None

    async def serve(self, reader, writer):
        self.writer = writer
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                api_key, version, number, name = struct.unpack_from(
                    ">hhih", frame := await reader.readexactly(size)
                )
                if api_key == API_VERSIONS:
                    self.send(number, ApiVersionResponse_v0(0, KNOWN).encode())
                    continue
                self.asked.append((api_key, version, number, frame[10 + name :]))
                self.came.set()
        except asyncio.IncompleteReadError:
            writer.close()

    def send(self, number, body):
        self.writer.write(self.frame(number, body))

    @staticmethod
    def frame(number, body):
        return struct.pack(">ii", len(body) + 4, number) + body

    async def until_asked(self, count):
        async with asyncio.timeout(10):
            while len(self.asked) < count:
                self.came.clear()
                await self.came.wait()
        return [number for _, _, number, _ in self.asked]


def with_session(test):
    def run():
        async def main():
            server = Server()
            listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
            port = listening.sockets[0].getsockname()[1]
            session = Session(
                "127.0.0.1", port, client_id="né", request_timeout_ms=5_000, max_idle_ms=60_000
            )
            await session.connect()
            try:
                await test(server, session)
            finally:
                ended = session.close()
                async with asyncio.timeout(10):
                    await ended
                listening.close()

        asyncio.run(main())

    run.__name__ = test.__name__
    return run


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 -- bytes cross a socket
            await asyncio.sleep(0.001)


@with_session
async def test_answers_to_us_and_to_aiokafka_come_in_their_order(server, session):
    told = []
    session.ask(MINE, session.version(MINE, 3, 7), b"first", told.append)
    theirs = asyncio.ensure_future(session.send(MetadataRequest([])))
    session.ask(MINE, 4, b"second", told.append)
    first, second, third = await server.until_asked(3)
    assert [each[:2] for each in server.asked] == [(MINE, 5), (METADATA, 0), (MINE, 4)]
    assert server.asked[0][3] == b"first"
    server.send(first, b"one")
    server.send(second, NO_TOPICS)
    server.send(third, b"")
    assert (await theirs).brokers == []
    await until(lambda: len(told) == 2)
    assert told == [b"one", b""]
    assert not session._requests


@with_session
async def test_the_end_of_the_connection_is_told_to_all_who_wait(server, session):
    told = []
    session.ask(MINE, 3, b"", told.append)
    session.ask(MINE, 3, b"", told.append)
    await server.until_asked(2)
    server.writer.close()
    await until(lambda: len(told) == 2)
    assert all(isinstance(error, KafkaConnectionError) for error in told)
    assert not session.connected()
    with pytest.raises(KafkaConnectionError, match="ended"):
        session.ask(MINE, 3, b"", told.append)


@with_session
async def test_after_an_answer_to_nobody_knows_which_request_nothing_is_taken_for_an_answer(
    server, session
):
    told = []
    session.ask(MINE, 3, b"", told.append)
    session.ask(MINE, 3, b"", told.append)
    first, second = await server.until_asked(2)
    server.send(second, b"not the first's")
    server.send(first, b"late")
    await until(lambda: len(told) == 2)
    assert all(isinstance(error, KafkaConnectionError) for error in told)
    assert not session.connected()


@with_session
async def test_a_version_is_one_that_both_sides_know(server, session):
    assert not server.asked
    assert session.version(MINE, 1, 4) == 4
    assert session.version(MINE, 1, 9) == 5
    with pytest.raises(UnsupportedVersionError):
        session.version(MINE, 6, 9)
    with pytest.raises(UnsupportedVersionError):
        session.version(MINE, 0, 2)
    with pytest.raises(UnsupportedVersionError):
        session.version(77, 0, 9)


class Taker:
    """What Frames use of a Session, which ends after `frames_max` frames."""

    def __init__(self, frames_max):
        self.frames = []
        self._frames_max = frames_max

    @property
    def _writer(self):
        return self if len(self.frames) < self._frames_max else None

    def _handle_frame(self, frame):
        self.frames.append(frame)


@given(st.lists(st.binary(max_size=9), max_size=6), st.integers(0, 6), st.data())
def test_answers_are_the_same_however_their_bytes_are_cut(bodies, frames_max, data):
    taker = Taker(frames_max)
    frames = Frames(taker)
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        frames.data_received(stream[:size])
        stream = stream[size:]
    assert taker.frames == bodies[:frames_max]
