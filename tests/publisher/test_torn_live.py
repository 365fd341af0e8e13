"""A body that breaks off on its way is never stored."""

import socket
import struct
import time  # noqa: TID251 -- real processes take real time

import pytest

from tests.publisher.frontend_process import HEAD, Process, status_of

pytestmark = pytest.mark.live

CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
BODY = b'5\r\n{"a":\r\n14\r\n' + b"1" * 20 + b"\r\n1\r\n}\r\n0\r\n\r\n"
RESET = struct.pack("ii", 1, 0)


def leave(connection: socket.socket, how: str) -> None:
    if how == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    elif how == "half":
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(3)
        received = b""
        while piece := connection.recv(65_536):
            received += piece
        assert not received or status_of(received) >= 400


@pytest.mark.parametrize("how", ["closed", "reset", "half"])
def test_a_chunked_body_that_breaks_off_anywhere_is_not_stored(how: str) -> None:
    with Process("tell", idle_timeout_ms=2_000, read_timeout_ms=2_500) as process:
        for end in range(len(BODY)):
            with socket.create_connection(("127.0.0.1", process.port)) as connection:
                connection.sendall(CHUNKED + BODY[:end])
                if end % 3:
                    # In one piece with the end of the connection, and apart from it.
                    time.sleep(0.02)
                leave(connection, how)
        whole = CHUNKED + BODY
        answer, _ = process.raw(whole, wait_s=0.5)
        assert status_of(answer) == 201
        stored = process.stored()
    assert len(stored) == 1
