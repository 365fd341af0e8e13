"""A frontend in a separate process, and raw requests to it."""

import json
import socket
import subprocess
import sys
import time  # noqa: TID251 -- real processes take real time
from pathlib import Path
from typing import Any, Self

import httpx

SCRIPT = Path(__file__).with_name("serve_frontend.py")
PROTOCOLS = ("HTTP/1.1", "HTTP/2")
HEAD = b"POST /topics/shop.orders HTTP/1.1\r\nHost: x\r\n"


def fetch(protocol: str, method: str, url: str, **options: Any) -> httpx.Response:
    """One request over HTTP/1.1, or over HTTP/2 by prior knowledge."""
    is_http2 = protocol == "HTTP/2"
    options = {"timeout": 20, **options}
    with httpx.Client(http1=not is_http2, http2=is_http2) as client:
        answer = client.request(method, url, **options)
    assert answer.http_version == protocol
    return answer


def status_of(answer: bytes) -> int:
    """The status of a raw answer."""
    return int(answer.split(b" ", 2)[1])


class Process:
    """A frontend in a separate process."""

    def __init__(self, *arguments: str, **settings: object) -> None:
        config = json.dumps({"port": 0, "graceful_shutdown_initial_wait_ms": 300, **settings})
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), config, *arguments], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.first_line = self.process.stdout.readline()

    def __enter__(self) -> Self:
        self.port, self.tls_port = json.loads(self.first_line)
        self.url = f"http://127.0.0.1:{self.port}"
        self.tls_url = f"https://127.0.0.1:{self.tls_port}"
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(timeout=20)
        self.process.stdout.close()

    def stored(self) -> list[dict[str, str]]:
        """Stop it; return the headers of the stored records, if it was started with "tell"."""
        self.process.terminate()
        assert self.process.stdout is not None
        told: list[dict[str, str]] = json.loads(self.process.stdout.read())
        return told

    def raw(self, *steps: bytes | float, wait_s: float = 4.0) -> tuple[bytes, bool]:
        """Send pieces with pauses; return the answer, and whether the server closed."""
        received = b""
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            for step in steps:
                if isinstance(step, float):
                    time.sleep(step)
                    continue
                try:
                    connection.sendall(step)
                except ConnectionError:
                    break
            connection.settimeout(wait_s)
            while True:
                try:
                    piece = connection.recv(65_536)
                except TimeoutError:
                    return received, False
                except ConnectionError:
                    return received, True
                if not piece:
                    return received, True
                received += piece
