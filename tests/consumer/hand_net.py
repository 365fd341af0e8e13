"""A test's network below the HTTP/1.1 sender: no loop, no sockets, time moved by hand."""

import heapq

from hermes_actors.consumer.senders.sender import Origin, Push, PushRoute

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
ORIGIN = Origin("http", "sink", 80)


class HandNet:
    """Satisfies `Net`."""

    def __init__(self):
        self.time_s = 0.0
        self.calls = []
        self.sequence = 0
        self.dials = []
        self.wires = []

    def now_s(self):
        return self.time_s

    def soon(self, callback):
        self.later(0, callback)

    def later(self, delay_s, callback):
        self.sequence += 1
        heapq.heappush(self.calls, (self.time_s + delay_s, self.sequence, callback))

    def dial(self, connection, origin):
        self.dials.append((connection, origin))

    def pass_time(self, delay_s):
        end_s = self.time_s + delay_s
        while self.calls and self.calls[0][0] <= end_s:
            self.time_s, _, callback = heapq.heappop(self.calls)
            callback()
        self.time_s = end_s

    def connect(self, at=0):
        connection, _ = self.dials.pop(at)
        wire = HandWire(connection)
        self.wires.append(wire)
        connection.opened(wire)
        return wire


class HandWire:
    """Satisfies `Wire`; keeps what is written."""

    def __init__(self, connection):
        self.connection = connection
        self.written = []
        self.room = 10**9
        self.is_closed = False

    def write(self, data):
        assert not self.is_closed, "written after closing"
        assert not self.is_full, "written in spite of the pause"
        self.written.append(data)
        self.room -= len(data)
        if self.is_full:
            self.connection.paused()

    @property
    def is_full(self):
        return self.room <= 0

    def read(self, count):
        """Let the peer take so many bytes."""
        was_full = self.is_full
        self.room += count
        if was_full and not self.is_full:
            self.connection.resumed()

    def abort(self):
        self.is_closed = True

    def is_closing(self):
        return self.is_closed


def push(body=b"x", *, lane="a", timeout_ms=1_000, socket_timeout_ms=0):
    start = b"POST / HTTP/1.1\r\nHost: sink\r\n"
    return Push(
        PushRoute(lane, ORIGIN, "/", start), b"A: b\r\n", body, timeout_ms, socket_timeout_ms
    )
