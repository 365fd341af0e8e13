"""Asks a broker for the live brokers, without a client library."""

import socket
import struct
import sys

_METADATA, _VERSION, _CORRELATION = 3, 1, 1
_ANSWER_BYTES_MAX = 1_048_576


def live_brokers(host: str, port: int, *, timeout_s: float = 2.0) -> list[int] | None:
    """The ids of the brokers that serve clients, as this broker sees it; None if it does not
    answer.

    Sends Kafka's Metadata request, version 1, for no topics. The port must be plain text.
    """
    request = struct.pack(">hhihi", _METADATA, _VERSION, _CORRELATION, -1, 0)
    try:
        with (
            socket.create_connection((host, port), timeout=timeout_s) as connection,
            connection.makefile("rb") as answer,
        ):
            connection.sendall(struct.pack(">i", len(request)) + request)
            (size,) = struct.unpack(">i", answer.read(4))
            if not 0 < size <= _ANSWER_BYTES_MAX:
                return None
            return brokers_of(answer.read(size))
    except (OSError, struct.error):
        return None


def brokers_of(answer: bytes) -> list[int]:
    """The sorted ids in an answer's body. Raises struct.error if it is truncated."""
    _, count = struct.unpack_from(">ii", answer)
    at = 8
    ids = []
    for _ in range(count):
        node_id, host_size = struct.unpack_from(">ih", answer, at)
        at += 6 + host_size + 4
        (rack_size,) = struct.unpack_from(">h", answer, at)
        at += 2 + max(0, rack_size)
        ids.append(node_id)
    return sorted(ids)


if __name__ == "__main__":
    # Arguments like those of Kafka's own tool in a health check: --bootstrap-server HOST:PORT.
    asked_host, _, asked_port = sys.argv[2].rpartition(":")
    sys.exit(0 if live_brokers(asked_host, int(asked_port)) else "it does not answer")
