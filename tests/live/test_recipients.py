"""Broadcasts over real sockets: `hermes dev` pushes to real HTTP servers, signed for each."""

import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.live.endpoint import Endpoint
from tests.live.waiting import wait_until

pytestmark = pytest.mark.live

DOCS = Path(__file__).parents[2] / "docs" / "delivery.md"


class Subscriber:
    """Answers 503 to the first attempt at each of the first `failures` messages, then 200."""

    def __init__(self, stack: ExitStack, failures: int = 0) -> None:
        self.left = failures
        self.taken: list[tuple[dict[str, str], bytes]] = []
        self.failed: set[str] = set()
        self.lock = threading.Lock()
        self.place = f"localhost:{stack.enter_context(Endpoint(self._take)).server_port}"

    def _take(self, headers: dict[str, str], body: bytes) -> int:
        with self.lock:
            if self.left and headers["webhook-id"] not in self.failed:
                self.left -= 1
                self.failed.add(headers["webhook-id"])
                return 503
            self.taken.append((headers, body))
            return 200


@pytest.fixture
def subscribers() -> Iterator[list[Subscriber]]:
    with ExitStack() as stack:
        yield [Subscriber(stack), Subscriber(stack, failures=5), Subscriber(stack)]


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
        "endpoint": ";".join(f"http://{each.place}/in" for each in subscribers),
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
    wait_until(lambda: all(len(each.taken) >= 30 for each in subscribers), "all have all")
    is_genuine = documented_check()
    for each in subscribers:
        assert len(each.taken) == 30
        assert {headers["webhook-id"] for headers, _ in each.taken} == ids
        for headers, content in each.taken:
            assert headers["host"] == each.place
            assert is_genuine(headers, content, old)
            assert is_genuine(headers, content, answer["secret"])
            assert not is_genuine(headers, content + b" ", old)
            assert not is_genuine(headers, content, old[:-4] + "AAAA")
    assert len(subscribers[1].failed) == 5
