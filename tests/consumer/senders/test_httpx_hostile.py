"""The sender over httpx' transport against endpoints that mean harm, on trio."""

import contextlib

import pytest
import trio
import trio.testing
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import StreamEnded
from h2.exceptions import ProtocolError

from hermes_actors.consumer.recipients.endpoint import parse_endpoint
from hermes_actors.consumer.senders.httpx.sender import open_httpx_sender
from hermes_actors.consumer.senders.oauth.request import (
    OAuthCredentials,
    TokenDenied,
    request_token,
)
from hermes_actors.consumer.senders.sender import Failure
from hermes_actors.model.oauth import OAuthProvider
from hermes_actors.model.subscription import OAuthPolicy
from tests.consumer.http_doubles import Sink, net_of, pushed, served, tcp


def route_to(port):
    return parse_endpoint(f"http://127.0.0.1:{port}/in", "lane").resolve(b"")


def sso_at(port):
    provider = OAuthProvider(
        name="sso",
        token_endpoint=f"http://127.0.0.1:{port}/token",
        client_id="c",
        client_secret="s",
        token_request_initial_delay=1,
        token_request_max_delay=1,
        request_timeout=60_000,
    )
    return OAuthCredentials(
        provider, OAuthPolicy(grant_type="clientCredentials", provider_name="sso")
    )


def frame(kind, flags, stream_id, payload=b""):
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags])
    return head + stream_id.to_bytes(4, "big") + payload


SENSELESS = {
    "settings of one byte": lambda _: frame(4, 0, 0, b"\0"),
    "data of no stream": lambda each: frame(0, 0, each + 100, b"x"),
    "windows beyond their bound": lambda _: frame(8, 0, 0, b"\x7f\xff\xff\xff") * 2,
    "a second head": lambda each: frame(1, 4, each, b"\x88"),
    "a head that cannot be unpacked": lambda each: frame(1, 4, each, b"\xff" * 5),
    "a push": lambda each: frame(5, 4, each, b"\0\0\0\2\x82\x87\x84\x86"),
    "an end that lies before": lambda each: frame(7, 0, 0, (each - 1).to_bytes(4, "big") * 2),
}


def answers_then(senseless):
    """A server that answers each push with a head of 200, and its body with this."""

    async def serve_one(stream):
        connection = H2Connection(H2Configuration(client_side=False))
        connection.initiate_connection()
        async with stream:
            await stream.send_all(connection.data_to_send())
            while data := await stream.receive_some():
                try:
                    events = connection.receive_data(data)
                except ProtocolError:
                    return
                for event in events:
                    if isinstance(event, StreamEnded):
                        connection.send_headers(event.stream_id, [(":status", "200")])
                        await stream.send_all(connection.data_to_send())
                        # In a read of its own.
                        await trio.testing.wait_all_tasks_blocked(0.005)
                        await stream.send_all(senseless(event.stream_id))
                await stream.send_all(connection.data_to_send())

    return serve_one


@pytest.mark.parametrize("senseless", SENSELESS.values(), ids=SENSELESS)
async def test_no_frame_behind_an_answers_head_ends_the_sender(senseless):
    sink = Sink()
    async with open_httpx_sender(net_of()) as sender, served(sink) as other:
        async with tcp(answers_then(senseless)) as port:
            for _ in range(2):
                assert (await pushed(sender, route_to(port), 1_000)).status == 200
        assert (await pushed(sender, route_to(other))).status == 200


async def test_a_head_decides_also_where_its_body_never_ends():
    async with (
        open_httpx_sender(net_of()) as sender,
        tcp(answers_then(lambda each: frame(0, 0, each, b"x"))) as port,
    ):
        assert (await pushed(sender, route_to(port), 100)).status == 200


FLOODS = {
    "pings": frame(6, 0, 0, b"12345678"),
    "settings": frame(4, 0, 0, b""),
    "settings with windows": frame(4, 0, 0, b"\0\4\0\0\xff\xff"),
    "frames that nobody knows": frame(200, 0, 0, b""),
    "windows": frame(8, 0, 0, b"\0\0\0\1"),
}


@pytest.mark.parametrize("each", FLOODS.values(), ids=FLOODS)
async def test_frames_without_end_end_the_connection_and_not_the_node(each):
    async def serve_one(stream):
        async with stream:
            await stream.receive_some()
            await stream.send_all(frame(4, 0, 0))
            with contextlib.suppress(trio.BrokenResourceError):
                # One in a piece, as fast as they are taken.
                while True:
                    await stream.send_all(each)
                    await trio.lowlevel.checkpoint()

    sink = Sink()
    async with tcp(serve_one) as port, served(sink) as other, open_httpx_sender(net_of()) as sender:
        with trio.fail_after(10):
            outcome = await pushed(sender, route_to(port), 60_000)
        assert outcome.failure is Failure.MALFORMED
        assert (await pushed(sender, route_to(other))).status == 200
    assert "too many frames" in outcome.detail


def floods(data):
    async def serve_one(stream):
        async with stream:
            await stream.receive_some()
            with contextlib.suppress(trio.BrokenResourceError):
                while True:
                    await stream.send_all(data)

    return serve_one


async def test_a_body_of_chunks_of_one_byte_is_cut_like_a_long_one():
    data = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 5_000
    rest = trio.Event()

    async def serve_one(stream):
        await stream.receive_some()
        with contextlib.suppress(trio.BrokenResourceError):
            await stream.send_all(data)
            await stream.receive_some()
        rest.set()

    async with (
        tcp(serve_one) as port,
        open_httpx_sender(net_of(), http2=False) as sender,
    ):
        with trio.fail_after(10):
            assert (await pushed(sender, route_to(port), 60_000)).status == 200
            await rest.wait()


@pytest.mark.parametrize(
    "answer",
    [
        b"Transfer-Encoding: chunked\r\n\r\n" + b'{"access_token":"hush"}\r\n',
        b'{"access_token":"hush"}\r\n\r\n',
        b'Content-Length: "hush"\r\n\r\n',
        b"hush\0: a\r\n\r\n",
    ],
)
async def test_no_error_repeats_what_a_peer_has_sent(answer):
    async def serve_one(stream):
        async with stream:
            await stream.receive_some()
            await stream.send_all(b"HTTP/1.1 200 OK\r\n" + answer)

    async with tcp(serve_one) as port, open_httpx_sender(net_of(), http2=False) as sender:
        with pytest.raises(TokenDenied) as denied:
            await request_token(sender, sso_at(port))
        assert "hush" not in str(denied.value)
        assert "hush" not in (await pushed(sender, route_to(port))).detail


async def test_a_token_answer_of_tiny_chunks_is_refused_before_it_takes_the_node():
    data = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 5_000
    async with tcp(floods(data)) as port, open_httpx_sender(net_of(), http2=False) as sender:
        with trio.fail_after(10), pytest.raises(TokenDenied, match="longer than 65536 bytes"):
            await request_token(sender, sso_at(port))
