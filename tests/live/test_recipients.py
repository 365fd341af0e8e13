"""Broadcasts over real sockets: `hermes dev` pushes to real HTTP servers, signed for each."""

import re
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

pytestmark = pytest.mark.live

DOCS = Path(__file__).parents[2] / "docs" / "delivery.md"


class Subscriber(ThreadingHTTPServer):
    """Answers 503 to the first attempt at each of the first `failures` messages, then 200."""

    daemon_threads = True

    def __init__(self, failures: int = 0) -> None:
        super().__init__(("127.0.0.1", 0), Taking)
        self.left = failures
        self.taken: list[tuple[dict[str, str], bytes]] = []
        self.failed: set[str] = set()
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://localhost:{self.server_port}/in"

    def take(self, headers: dict[str, str], body: bytes) -> int:
        with self.lock:
            if self.left and headers["webhook-id"] not in self.failed:
                self.left -= 1
                self.failed.add(headers["webhook-id"])
                return 503
            self.taken.append((headers, body))
            return 200


class Taking(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Subscriber

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.send_response(self.server.take(headers, body))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_arguments: Any) -> None:
        """Not on the test's console."""


@pytest.fixture
def subscribers() -> Iterator[list[Subscriber]]:
    made = [Subscriber(), Subscriber(failures=5), Subscriber()]
    yield made
    for each in made:
        each.shutdown()
        each.server_close()


def documented_check() -> Any:
    """The function that the documentation gives to subscribers."""
    (code,) = (
        each for each in re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
        if "def is_genuine" in each
    )  # fmt: skip
    names: dict[str, Any] = {}
    exec(code, names)
    return names["is_genuine"]


def test_each_recipient_gets_each_message_once_and_can_check_it(start, http, shop, subscribers):
    node = start("dev", "--dcs", "dc1", "--publish-port", "0", "--management-port", "0", "--json")
    place = node.ready["dcs"][0]
    # Somebody else's; the one that counts begins suspended, so that all is set when it delivers.
    shop(place["management"], "http://localhost:9/")
    subscriptions = f"{place['management']}/topics/shop.orders/subscriptions"
    old = "whsec_" + "b2xk" * 12
    _, body = http("GET", f"{subscriptions}/sink")
    body |= {
        "name": "all",
        "endpoint": ";".join(each.url for each in subscribers),
        "mode": "BROADCAST",
        "endpointAddressResolverMetadata": {"resolve": "dns"},
        "signing": {"secrets": [old]},
        "state": "SUSPENDED",
    }
    made = http("POST", subscriptions, body)
    assert made[0] == 201, made
    subscription = f"{subscriptions}/all"
    _, answer = http("POST", f"{subscription}/signing/rotate")
    connection = HTTPConnection(urlsplit(place["publish"]).netloc, timeout=15)
    ids = set()
    for n in range(30):
        connection.request("POST", "/topics/shop.orders", b'{"n":%d}' % n)
        published = connection.getresponse()
        published.read()
        assert published.status == 201
        ids.add(published.headers["Hermes-Message-Id"])
    connection.close()
    assert http("PUT", f"{subscription}/state", "ACTIVE")[0] == 200
    pause = threading.Event()
    for _ in range(150):
        if all(len(each.taken) >= 30 for each in subscribers):
            break
        pause.wait(0.1)
    is_genuine = documented_check()
    for each in subscribers:
        assert len(each.taken) == 30
        assert {headers["webhook-id"] for headers, _ in each.taken} == ids
        for headers, content in each.taken:
            assert headers["host"] == f"localhost:{each.server_port}"
            assert is_genuine(headers, content, old)
            assert is_genuine(headers, content, answer["secret"])
            assert not is_genuine(headers, content + b" ", old)
            assert not is_genuine(headers, content, old[:-4] + "AAAA")
    assert len(subscribers[1].failed) == 5
