"""A subscriber's endpoint on loopback, served by threads of the test's process."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Take = Callable[[dict[str, str], bytes], int]
"""Gets a request's headers, by lower-case name, and its body; returns the status. Called in a
separate thread for each connection.
"""


class Endpoint(ThreadingHTTPServer):
    """Serves all paths from its creation to the end of the block."""

    daemon_threads = True

    def __init__(self, take: Take) -> None:
        super().__init__(("127.0.0.1", 0), _Requests)
        self.take = take
        self.url = f"http://127.0.0.1:{self.server_port}/"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()


class _Requests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Endpoint

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        headers[":path"] = self.path
        self.send_response(self.server.take(headers, body))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""
