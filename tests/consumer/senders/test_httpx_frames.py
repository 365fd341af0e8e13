"""Frames of HTTP/2: a graceful GOAWAY is taken out, wherever the network cuts, and floods end."""

import httpcore
import pytest
import trio
import trio.testing
from hyperframe.frame import (
    DataFrame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
)
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.consumer.senders.httpx.frames import (
    FRAMES_AT_FIRST,
    REFUSED_STREAM,
    STREAMS_MAX,
    FrameFilter,
    TooManyFrames,
)
from hermes_actors.consumer.senders.httpx.net import EndpointStream

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def head(stream_id, flags=()):
    return HeadersFrame(stream_id, b"h" * 30, flags=flags).serialize()


def goaway(last_stream_id, error_code=0):
    return GoAwayFrame(0, last_stream_id, error_code, b"why").serialize()


class Wire(httpcore.AsyncNetworkStream):
    """What comes from a peer that then is silent, and what is written to it."""

    coming = written = b""

    async def read(self, *_):
        coming, self.coming = self.coming, b""
        return coming or await trio.sleep_forever()

    async def write(self, buffer, *_):
        self.written += buffer


@given(st.data())
def test_a_graceful_goaway_refuses_the_later_streams_and_touches_no_other(data):
    heard = []
    frames = FrameFilter(lambda: heard.append(1))
    frames.sent(PREFACE + SettingsFrame(0).serialize() + head(1) + DataFrame(1, b"x").serialize())
    frames.sent(head(3) + head(5) + head(7))
    ended = head(1, ("END_STREAM",))
    received = (
        SettingsFrame(0).serialize() + ended + goaway(3) + DataFrame(3, b"y" * 99).serialize()
    )
    kept, at = b"", 0
    while at < len(received):
        step = data.draw(st.integers(1, 40))
        kept += frames.received(received[at : at + step])
        at += step
    refused = b"".join(RstStreamFrame(each, REFUSED_STREAM).serialize() for each in (5, 7))
    settings = SettingsFrame(0, {SettingsFrame.MAX_CONCURRENT_STREAMS: STREAMS_MAX}).serialize()
    given_settings = SettingsFrame(0).serialize()
    assert kept == received.replace(goaway(3), refused).replace(given_settings, settings)
    assert heard == [1]


async def test_a_stream_on_its_way_at_a_graceful_goaway_is_not_written_and_refused_at_once():
    """Its headers are ready, and it waits for the turn to write while another one reads."""
    wire = Wire()
    stream, read = EndpointStream(wire, lambda: None), []
    opening = PREFACE + SettingsFrame(0).serialize() + head(1)
    await stream.write(opening)
    wire.coming = goaway(1) + PingFrame(0, b"8 bytes!").serialize()

    async def reader():
        while True:
            read.append(await stream.read(100))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader)
        await trio.testing.wait_all_tasks_blocked()
        data = DataFrame(1, b"x").serialize()
        await stream.write(head(3) + data + DataFrame(3, b"y").serialize())
        await stream.write(DataFrame(3, flags=("END_STREAM",)).serialize())
        await trio.testing.wait_all_tasks_blocked()
        assert read[1:] == [RstStreamFrame(3, REFUSED_STREAM).serialize()]
        assert wire.written == opening + data
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("frame", [goaway(3, 2), b"\0\0\1\7\0\0\0\0\0x"])
def test_a_goaway_with_an_error_or_without_sense_is_passed_on(frame):
    frames = FrameFilter(lambda: pytest.fail("not graceful"))
    frames.sent(PREFACE + head(5))
    assert frames.received(frame) == frame


@pytest.mark.slow
def test_frames_that_answer_no_request_are_bounded_and_requests_earn_more():
    frames, ping = FrameFilter(lambda: None), PingFrame(0, b"12345678").serialize()
    for stream_id in range(1, 20_001, 2):
        frames.sent(head(stream_id))
        frames.received(ping * 50 + head(stream_id, ("END_STREAM",)))
    with pytest.raises(TooManyFrames):
        FrameFilter(lambda: None).received(ping * (FRAMES_AT_FIRST + 1))
