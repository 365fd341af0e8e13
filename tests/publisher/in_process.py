"""Requests to a frontend over HTTP/1.1 connections without sockets, raw or through httpx."""

import h11
import httpx
import trio

from hermes_actors.publisher.edges.publishing import PublishEdge
from hermes_chaos.sim.environment.http_in import Line


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def head_of(method: str, path: str, headers: list[tuple[bytes, bytes]]) -> bytes:
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
    if not any(name.lower() == b"host" for name, _ in headers):
        lines = b"Host: x\r\n" + lines
    return f"{method} {path} HTTP/1.1\r\n".encode() + lines + b"\r\n"


class Answers:
    """A connection's answers to requests of one method, parsed by h11."""

    def __init__(self, answered: bytes, is_closed: bool, method: str = "POST") -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""
        self.is_complete = False
        if not answered:
            return
        client = h11.Connection(h11.CLIENT)
        client.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
        client.send(h11.EndOfMessage())
        client.receive_data(answered)
        if is_closed:
            client.receive_data(b"")
        while True:
            event = client.next_event()
            if isinstance(event, h11.Response):
                self.status, self.headers = event.status_code, event.headers.raw_items()
            elif isinstance(event, h11.Data):
                self.body += event.data
            elif isinstance(event, h11.EndOfMessage):
                self.is_complete = True
                return
            elif event in (h11.NEED_DATA, h11.PAUSED) or isinstance(event, h11.ConnectionClosed):
                return

    def header_pairs(self) -> dict[str, str]:
        return {name.decode().lower(): value.decode() for name, value in self.headers}


async def answers_of(line: Line) -> Answers:
    """Wait for the end of the answer, or of the connection."""
    while True:
        answers = Answers(bytes(line.answered), line.is_closed)
        if answers.is_complete or line.is_closed:
            return answers
        await line.changed.wait()


class InProcess(httpx.AsyncBaseTransport):
    """Sends each request on a new connection, added to `lines` for the sweep."""

    def __init__(self, edge: PublishEdge, lines: list[Line]) -> None:
        self._edge = edge
        self._lines = lines

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        line = Line(self._edge)
        self._lines.append(line)
        path = request.url.raw_path.decode()
        line.send(head_of(request.method, path, request.headers.raw))
        await trio.lowlevel.checkpoint()
        is_chunked = request.headers.get("transfer-encoding") == "chunked"
        async for piece in request.stream:
            line.send(chunk(piece) if is_chunked and piece else piece)
            await trio.lowlevel.checkpoint()
        if is_chunked:
            line.send(b"0\r\n\r\n")
        answers = await answers_of(line)
        self._lines.remove(line)
        line.leave()
        if not answers.is_complete:
            raise httpx.RemoteProtocolError("closed without an answer")
        return httpx.Response(answers.status, headers=answers.headers, content=answers.body)
