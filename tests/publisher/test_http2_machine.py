"""A client of HTTP/2 that does anything in any order: what it has asked to the end is answered, as
it was stored, and nothing is left of it.
"""

import os
import random

import h2.exceptions
import h2.windows
import pytest
import trio
from h2.settings import SettingCodes

from hermes_actors.publisher.answers import Answer
from tests.publisher.test_http2_connection import BATCH, PATH, Client
from tests.seeds import seeds

RUNS = int(os.environ.get("HERMES_HTTP2_RUNS", "6"))
KINDS = ("publish", "publish", "publish", "unknown", "ping", "metrics", "batch", "too_large")
WINDOWS = (0, 1, 10, 1_000, 65_535, 200_000)
STEPS = 150


@pytest.fixture(autouse=True)
def client_takes_empty_frames(monkeypatch) -> None:
    """Empty frames need no room, and may come to a window below 0 (RFC 9113, 6.9); h2 errs."""
    consumed = h2.windows.WindowManager.window_consumed

    def taken(manager: h2.windows.WindowManager, size: int) -> None:
        if size:
            consumed(manager, size)

    monkeypatch.setattr(h2.windows.WindowManager, "window_consumed", taken)


def identify(edge, rng) -> None:
    """Have the edge ask who sends a request with the header x-ask, and refuse who says no."""
    begin = edge.begin

    def ask_first(line, request):
        answer = request.fields.get(b"x-ask")

        async def ask():
            await trio.sleep(rng.choice([0, 0.01, 0.2]))
            return Answer(401) if answer == b"no" else None

        if answer is None:
            begin(line, request)
        else:
            line.later(ask, lambda: begin(line, request))

    edge.begin = ask_first


class Anybody:
    """A client: the requests that it has made, and the frames that it still has to send."""

    def __init__(self, world, rng) -> None:
        self.world, self.rng = world, rng
        self.client = Client(world)
        self.frames = self.client.frames
        self.kinds, self.bodies, self.rests = {}, {}, {}
        self.refused, self.taken_back = set(), set()
        self.steps = [self.take_back, self.set_window, self.stop_reading, self.read_on]
        self.steps += [self.toggle_log] + 2 * [self.ask, self.send_bodies]

    def ask(self) -> None:
        stream = 2 * len(self.kinds) + 1
        kind = self.kinds[stream] = self.rng.choice(KINDS)
        headers = {}
        if self.rng.random() < 0.3:
            headers["x_ask"] = self.rng.choice(["yes", "yes", "no"])
            if headers["x_ask"] == "no":
                self.refused.add(stream)
        if kind in ("ping", "metrics"):
            path = "/status/ping" if kind == "ping" else "/status/prometheus"
            self.client.ask(stream, "GET", path, ends=True, **headers)
            return
        body = b"%d " % stream + b"y" * self.rng.choice([0, 10, 900])
        path = "/topics/no.such" if kind == "unknown" else PATH
        if kind == "batch":
            path, body = PATH + "/batch", b'{"message":{}}\n' * self.rng.randrange(400)
            headers["content_type"] = BATCH
        elif kind == "too_large":
            body = b"x" * 60_000
        if kind != "batch":
            headers["content_length"] = str(len(body))
        self.client.ask(stream, path=path, **headers)
        self.bodies[stream] = self.rests[stream] = body

    def send_bodies(self, *, is_all=False) -> None:
        for stream, rest in list(self.rests.items()):
            try:
                window = self.frames.local_flow_control_window(stream)
                size = max(0, min(window, 16_384, len(rest)))
                if not is_all:
                    size = self.rng.randrange(size + 1)
                ends = size == len(rest) and (is_all or self.rng.random() < 0.7)
                if size or ends:
                    self.frames.send_data(stream, rest[:size], end_stream=ends)
            except h2.exceptions.ProtocolError:
                # The server has ended it.
                ends = True
            self.rests[stream] = rest[size:]
            if ends:
                del self.rests[stream]

    def take_back(self) -> None:
        if self.kinds:
            stream = self.rng.choice(list(self.kinds))
            try:
                self.frames.reset_stream(stream)
            except h2.exceptions.ProtocolError:
                return
            self.taken_back.add(stream)
            self.rests.pop(stream, None)

    def set_window(self, size=None) -> None:
        size = self.rng.choice(WINDOWS) if size is None else size
        self.frames.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: size})

    def stop_reading(self) -> None:
        self.client.line.may_write = trio.Event()

    def read_on(self) -> None:
        if not self.client.line.may_write.is_set():
            self.client.line.read_on()

    def toggle_log(self) -> None:
        self.world.log.faults.silent = not self.world.log.faults.silent

    async def play(self) -> None:
        self.client.send()
        await trio.sleep(0.01)
        self.client.hear()
        for _ in range(STEPS):
            self.rng.choice(self.steps)()
            if self.rng.random() < 0.5:
                self.client.send(self.rng.choice([1, 9, 100, 1_000_000]))
                self.client.hear()
            if self.rng.random() < 0.1:
                await trio.sleep(self.rng.choice([0, 0.001, 0.05, 0.6]))

    async def come_to_an_end(self) -> None:
        self.world.log.faults.silent = False
        self.read_on()
        self.set_window(1_000_000)
        self.frames.increment_flow_control_window(10_000_000)
        for _ in range(60):
            self.send_bodies(is_all=True)
            self.client.send()
            await trio.sleep(0.2)
            self.client.hear()

    def check(self) -> None:
        stored = [each.value for each in self.world.stored]
        for stream in self.kinds.keys() - self.taken_back:
            status, kind = self.client.statuses.get(stream), self.kinds[stream]
            assert stream in self.client.ended, f"{kind} on {stream} has no answer"
            if stream in self.refused:
                assert status == 401
            elif kind == "publish":
                is_stored = {201: [1], 408: [0], 503: [0, 1]}[status]
                assert stored.count(self.bodies[stream]) in is_stored
            else:
                expected = {"unknown": [404], "too_large": [400, 408], "metrics": [200, 503]}
                assert status in expected.get(kind, [200]), kind


@pytest.mark.parametrize("seed", seeds(RUNS))
async def test_whatever_a_client_does_it_is_answered_and_as_stored(
    open_world, seed, autojump_clock
):
    rng = random.Random(seed)
    async with open_world() as world:
        await world.add_topic("shop.orders")
        identify(world.edge, rng)
        anybody = Anybody(world, rng)
        await anybody.play()
        await anybody.come_to_an_end()
        anybody.check()
        assert world.crashes == []
        assert world.frontend.drain.in_flight == 0
        connection = anybody.client.line.connection
        assert not connection.streams
        room = connection.frames.inbound_flow_control_window
        assert room > 65_535 / 2, "what was taken back has given its room back"
