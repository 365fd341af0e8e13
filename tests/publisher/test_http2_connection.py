"""HTTP/2 connections of publishers, without sockets: a client of h2 on one side, the edge on the
other.
"""

import json
import random
from contextlib import suppress

import h2.connection
import h2.events
import h2.exceptions
import h2.settings
import pytest
import trio
from hyperframe.frame import ContinuationFrame, GoAwayFrame, HeadersFrame, PingFrame, SettingsFrame

from hermes_actors.publisher.edges.http2.connection import Http2Connection
from hermes_chaos.sim.environment.http_in import Line
from tests.seeds import seeds

PATH = "/topics/shop.orders"
BATCH = "application/vnd.hermes.messages+ndjson"


class Client:
    """A client's end: what it asked, and what was answered on each stream."""

    def __init__(self, world, *, window=None):
        self.line = Line(world.edge, Http2Connection)
        world.lines.append(self.line)
        self.frames = h2.connection.H2Connection()
        self.frames.initiate_connection()
        if window is not None:
            changed = {h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window}
            self.frames.update_settings(changed)
        self.statuses, self.heads, self.bodies, self.ended = {}, {}, {}, set()
        self.asked, self.goodbyes = set(), []

    def ask(self, stream, method="POST", path=PATH, *, ends=False, **headers):
        pairs = [(":method", method), (":path", path), (":scheme", "http"), (":authority", "x")]
        pairs += [(name.replace("_", "-"), value) for name, value in headers.items()]
        self.frames.send_headers(stream, pairs, end_stream=ends)

    def publish(self, stream, body=b"{}", path=PATH, **headers):
        self.ask(stream, path=path, content_length=str(len(body)), **headers)
        self.frames.send_data(stream, body, end_stream=True)

    def send(self, piece_bytes=1_000_000):
        data = self.frames.data_to_send()
        for at in range(0, len(data), piece_bytes):
            self.line.send(data[at : at + piece_bytes])

    def hear(self):
        data, self.line.answered = bytes(self.line.answered), bytearray()
        for event in self.frames.receive_data(data):
            stream = getattr(event, "stream_id", None)
            if isinstance(event, h2.events.ResponseReceived):
                pairs = [(name.decode(), value.decode()) for name, value in event.headers]
                self.statuses[stream] = int(pairs.pop(0)[1])
                self.heads[stream] = pairs
            elif isinstance(event, h2.events.InformationalResponseReceived):
                self.asked.add(stream)
            elif isinstance(event, h2.events.DataReceived):
                self.bodies[stream] = self.bodies.get(stream, b"") + event.data
                self.frames.acknowledge_received_data(event.flow_controlled_length, stream)
            elif isinstance(event, h2.events.StreamEnded):
                self.ended.add(stream)
            elif isinstance(event, h2.events.ConnectionTerminated):
                self.goodbyes.append(event.last_stream_id)

    async def talk(self, seconds=1.0):
        """Exchange bytes for so long."""
        for _ in range(20):
            self.send()
            await trio.sleep(seconds / 20)
            self.hear()


@pytest.mark.parametrize("size", [1, 7, 1_000, 1_000_000])
async def test_requests_cut_anywhere_are_all_answered_and_stored(world, size, autojump_clock):
    client = Client(world)
    for number in range(40):
        client.publish(2 * number + 1, b"%d" % number)
    client.send(size)
    await client.talk()
    assert client.statuses == dict.fromkeys(range(1, 81, 2), 201)
    assert client.ended == set(client.statuses)
    assert sorted(int(each.value) for each in world.stored) == list(range(40))


async def test_what_one_read_brings_is_begun_in_several_turns_of_the_loop(world, autojump_clock):
    client = Client(world)
    for number in range(500):
        client.publish(2 * number + 1)
    client.send()
    # A piece of the read may hold more than there may be.
    assert 16 <= world.frontend.drain.in_flight < 64
    await client.talk()
    assert client.statuses == dict.fromkeys(range(1, 1_001, 2), 201)


async def test_a_stream_that_is_taken_back_leaves_the_others(world, autojump_clock):
    client = Client(world)
    client.ask(1, content_length="9")
    client.frames.send_data(1, b"abc")
    client.frames.reset_stream(1)
    client.publish(3)
    await client.talk()
    assert client.statuses == {3: 201}
    assert world.frontend.drain.in_flight == 0


@pytest.mark.parametrize("window", [0, 3, 65_535])
async def test_nothing_is_kept_of_streams_that_were_taken_back(world, window, autojump_clock):
    client = Client(world, window=window)
    for first in range(1, 201, 4):
        client.ask(first, "GET", "/status/prometheus", ends=True)
        client.ask(first + 2, content_length="9")
        client.frames.send_data(first + 2, b"")
        client.send()
        await trio.sleep(1)
        client.hear()
        for stream in (first, first + 2):
            with suppress(h2.exceptions.ProtocolError):
                client.frames.reset_stream(stream)
        client.send()
    await trio.sleep(1)
    assert client.line.connection.streams == {}
    assert client.line.connection.protocol.stream_buffers == {}


@pytest.mark.parametrize("path", ["/topics/no.such", "/status/ping", "/status/prometheus", PATH])
@pytest.mark.parametrize("leaves", [False, True])
async def test_what_is_taken_back_in_the_same_read_is_not_answered(
    world, path, leaves, autojump_clock
):
    client = Client(world)
    for stream in (1, 3):
        client.ask(stream, "GET" if "status" in path else "POST", path, ends=True)
        client.frames.reset_stream(stream)
    if leaves:
        client.frames.close_connection()
        client.send()
        await trio.sleep(1)
    else:
        client.publish(5)
        await client.talk()
    assert client.statuses == ({} if leaves else {5: 201})
    assert client.line.is_closed == leaves
    assert world.frontend.drain.in_flight == 0


async def test_a_body_that_was_refused_gives_its_room_back(world, autojump_clock):
    client = Client(world)
    for stream in range(1, 41, 2):
        client.ask(stream, path="/topics/no.such", content_length="10000")
        client.send()
        client.hear()
        for _ in range(10):
            client.frames.send_data(stream, b"x" * 1_000)
        client.frames.end_stream(stream)
        client.send()
        await trio.sleep(0.01)
        client.hear()
    assert client.statuses == dict.fromkeys(range(1, 41, 2), 404)
    client.publish(41)
    await client.talk()
    assert client.statuses[41] == 201


async def test_a_body_that_never_comes_is_408_and_other_requests_go_on(world, autojump_clock):
    client = Client(world)
    client.ask(1, content_length="2")
    client.publish(3)
    await client.talk(2)
    assert client.statuses == {1: 408, 3: 201}
    client.frames.send_data(1, b"{}", end_stream=True)
    client.publish(5)
    await client.talk()
    assert client.statuses[5] == 201


async def test_a_batch_waits_for_the_room_that_its_client_gives(world, autojump_clock):
    client = Client(world, window=10)
    lines = b"\n".join([b'{"message":{}}'] * 50) + b"\n"
    client.ask(1, path=PATH + "/batch", content_type=BATCH)
    client.frames.send_data(1, lines, end_stream=True)
    client.send()
    await trio.sleep(1)
    assert len(world.stored) == 50
    client.hear()
    assert len(client.bodies[1]) == 10
    for _ in range(2_000):
        if 1 in client.ended:
            break
        client.send()
        await trio.sleep(0.001)
        client.hear()
    answers = [json.loads(line) for line in client.bodies[1].splitlines()]
    assert [each["status"] for each in answers] == [201] * 50


async def test_a_batch_that_is_held_back_holds_its_client_back(open_world, autojump_clock):
    async with open_world(batch_in_flight_bytes_max=1_000) as world:
        await world.add_topic("shop.orders")
        world.log.faults.silent = True
        client = Client(world)
        client.ask(1, path=PATH + "/batch", content_type=BATCH)
        line, sent = b'{"message":{}}\n' * 100, 0
        for _ in range(200):
            if client.frames.local_flow_control_window(1) < len(line):
                break
            client.frames.send_data(1, line)
            sent += len(line)
            client.send()
            await trio.sleep(0.0001)
            client.hear()
        assert sent < 150_000


@pytest.mark.parametrize("seed", seeds(30))
async def test_frames_with_faults_end_their_connection_and_nothing_else(
    world, seed, autojump_clock
):
    rng = random.Random(seed)
    for _ in range(10):
        client = Client(world)
        for stream in range(1, 21, 2):
            path = rng.choice([PATH, "/topics/no.such", "/status/ping", PATH + "/batch"])
            client.publish(stream, rng.randbytes(rng.randrange(300)), path)
            if rng.random() < 0.2:
                client.frames.reset_stream(stream)
        data = bytearray(client.frames.data_to_send())
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(24, len(data))
            fault = rng.randrange(3)
            if fault == 0:
                data[at] = rng.randrange(256)
            elif fault == 1:
                del data[at : at + rng.randrange(20)]
            else:
                data[at:at] = rng.randbytes(rng.randrange(20))
        size = rng.choice([1, 9, 100, 10_000])
        for at in range(0, len(data), size):
            client.line.send(bytes(data[at : at + size]))
        await trio.sleep(0.05)
        client.line.leave()
    await trio.sleep(5)
    assert world.frontend.drain.in_flight == 0
    assert world.crashes == []
    client = Client(world)
    client.publish(1)
    await client.talk()
    assert client.statuses == {1: 201}


async def test_a_silent_connection_is_closed_with_a_goodbye(world, autojump_clock):
    client = Client(world)
    client.publish(1)
    await client.talk()
    await trio.sleep(62)
    client.hear()
    assert client.line.is_closed
    assert client.goodbyes == [1]


async def test_a_page_that_takes_its_time_is_read_before_the_next_is_rendered(
    world, autojump_clock
):
    client = Client(world, window=0)
    for stream in (1, 3, 5):
        client.ask(stream, "GET", "/status/prometheus", ends=True)
    client.ask(7, "GET", "/status/ping", ends=True)
    client.publish(9)
    await client.talk()
    assert client.statuses == {1: 200, 3: 503, 5: 503, 7: 200, 9: 201}
    client.frames.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 1_000_000})
    await client.talk()
    assert client.bodies[1].startswith(b"# HELP")
    client.ask(11, "GET", "/status/prometheus", ends=True)
    await client.talk()
    assert client.statuses[11] == 200


async def test_a_client_that_says_goodbye_has_its_answers_first(world, autojump_clock):
    world.log.faults.silent = True
    client = Client(world)
    client.publish(1)
    client.ask(3, content_length="2")
    client.send()
    client.line.send(GoAwayFrame(0).serialize())
    client.frames.send_data(3, b"{}", end_stream=True)
    await client.talk(0.3)
    assert not client.line.is_closed
    world.log.faults.silent = False
    await client.talk(6)
    assert set(client.statuses) == client.ended == {1, 3}
    assert client.line.is_closed


async def test_a_client_that_waits_to_be_asked_for_its_body_is_asked(world, autojump_clock):
    client = Client(world)
    expects = {"expect": "100-continue", "content_length": "2"}
    client.ask(1, **expects)
    client.ask(3, path="/topics/no.such", **expects)
    client.ask(5, path=PATH + "/batch", content_type=BATCH, **expects)
    client.send()
    await trio.sleep(0.01)
    client.hear()
    assert client.asked == {1, 5}
    assert client.statuses == {3: 404}
    for stream in (1, 5):
        client.frames.send_data(stream, b"{}", end_stream=True)
    await client.talk()
    assert client.statuses == {1: 201, 3: 404, 5: 200}


@pytest.mark.parametrize("leaves", [True, False])
async def test_an_answer_that_its_client_is_still_reading_is_not_cut_off(
    world, leaves, autojump_clock
):
    client = Client(world)
    client.publish(1)
    client.line.may_write = trio.Event()
    client.send()
    await trio.sleep(0.1)
    if leaves:
        client.line.connection.leave(world.edge.now_s)
    for _ in range(2 if leaves else 7):
        await trio.sleep(10)
        client.line.answered.append(client.line._unsent.pop(0))
    assert not client.line.is_closed
    client.line.read_on()
    client.hear()
    assert client.statuses == {1: 201}
    await trio.sleep(1)
    client.hear()
    assert client.line.is_closed
    assert client.goodbyes[-1] == 1


async def test_a_client_that_has_read_a_part_and_no_more_is_not_read_on(world, autojump_clock):
    client = Client(world)
    line = client.line
    line.may_write = trio.Event()
    client.ask(1, content_length="2")
    client.ask(3, "GET", "/status/ping", ends=True)
    client.send()
    assert not line._is_reading
    # The answer to the body that does not come waits.
    await trio.sleep(2)
    line.answered += line._unsent
    line._unsent.clear()
    # What is written now fills the wire again.
    line.connection.resumed()
    assert not line._is_reading
    line.read_on()
    await client.talk()
    assert client.statuses == {1: 408, 3: 200}


def settings_frame(settings):
    frame = SettingsFrame(0)
    frame.settings.update(settings)
    return frame.serialize()


@pytest.mark.parametrize("settings", [{}, {4: 1}, {4: 65_535, 200: 1}])
async def test_a_client_that_does_nothing_but_set_is_sent_away(world, settings, autojump_clock):
    client = Client(world)
    client.send()
    client.line.send(settings_frame(settings) * 1_001)
    await trio.sleep(1)
    client.hear()
    assert client.line.is_closed
    assert client.goodbyes == [0]


async def test_the_frames_of_one_read_are_followed_in_several_turns(world, autojump_clock):
    client = Client(world)
    client.send()
    client.hear()
    client.line.send(PingFrame(0, b"12345678").serialize() * 2_000)
    ping_bytes = 17
    assert 0 < len(client.line.answered) < 100 * ping_bytes
    await trio.sleep(1)
    assert len(client.line.answered) == 2_000 * ping_bytes


async def test_a_head_without_an_end_is_not_gathered(world, autojump_clock):
    client = Client(world)
    client.send()
    client.line.send(HeadersFrame(1, b"").serialize())
    for _ in range(4):
        client.line.send(ContinuationFrame(1, bytes(16_384)).serialize())
    await trio.sleep(1)
    client.hear()
    assert client.line.is_closed
    assert client.goodbyes == [0]


async def test_a_client_that_ends_its_sending_side_is_gone(world, autojump_clock):
    client = Client(world)
    client.publish(1)
    client.send()
    client.line.connection.ended()
    await client.talk()
    assert client.line.is_closed
    assert client.statuses == {}
    assert len(world.stored) == 1


async def test_the_rest_of_what_was_answered_early_is_dropped_while_its_connection_lasts(
    world, autojump_clock
):
    client = Client(world)
    client.ask(1, path="/topics/no.such", content_length="1000")
    started_s = trio.current_time()
    while not client.line.is_closed:
        client.frames.send_data(1, b"x")
        client.send()
        await trio.sleep(1)
        client.hear()
    assert client.statuses == {1: 404}
    assert 60 <= trio.current_time() - started_s <= 62
