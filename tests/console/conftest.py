"""A running `hermes dev` and a browser for the tests of a module. Each test opens a new page."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from hermes_chaos.wanted import subscription_body, topic_body
from tests.console.browser import CHROMIUM, launch, watched_page
from tests.console.desk import Desk
from tests.live.conftest import Process, ask
from tests.live.endpoint import Endpoint
from tests.management.conftest import Api, api, settings

__all__ = ["api", "settings"]
"""Fixtures of management, for the console over it in process."""

GROUPS = ("shop", "payments", "warehouse")
TOPICS = ("shop.orders", "shop.carts", "payments.captured", "warehouse.moves")
ACTIVE = ("shop.orders", "billing")
FAILING = ("shop.orders", "mailer")
SUSPENDED = ("payments.captured", "ledger")
OWNER = {"source": "Plaintext", "id": "sales"}


class Scene:
    """Two datacentres with topics that get messages, a failing endpoint, and a subscription that a
    person has suspended. `publish` and `management` are the first datacentre's.
    """

    def __init__(self, addresses: dict[str, Any], endpoint: str) -> None:
        self.publish, self.management = addresses["publish"], addresses["management"]
        self.endpoint = endpoint

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        status, answer = ask(method, self.management + path, body)
        assert status < 300, (method, path, status, answer)
        return answer

    def send(self, topic: str, count: int = 1) -> None:
        for number in range(count):
            status, _ = ask("POST", f"{self.publish}/topics/{topic}", {"number": number})
            assert status == 201

    def subscribe(self, topic: str, name: str, path: str = "ok", **fields: Any) -> None:
        body = subscription_body(topic, name, f"{self.endpoint}{path}", **{"owner": OWNER} | fields)
        self.ask("POST", f"/topics/{topic}/subscriptions", body)

    def set_up(self) -> None:
        for name in GROUPS:
            self.ask("POST", "/groups", {"groupName": name})
        for name in TOPICS:
            self.ask("POST", "/topics", topic_body(name, owner=OWNER, description="an example"))
        self.subscribe(*ACTIVE)
        self.subscribe(*FAILING, path="broken")
        self.subscribe(*SUSPENDED)
        topic, name = SUSPENDED
        self.ask("PUT", f"/topics/{topic}/subscriptions/{name}/state", "SUSPENDED")
        for topic in TOPICS:
            self.send(topic, 5)


def _answer(headers: dict[str, str], _body: bytes) -> int:
    return 500 if headers[":path"].startswith("/broken") else 200


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("console")
    variables = {
        "HERMES_SPOOL_DIRECTORY": str(folder / "spools"),
        "HERMES_CONSUMERS_ENDPOINTS_ALLOW_LOOPBACK": "true",
        "HERMES_MANAGEMENT_ALLOW_REMOVAL": "true",
    }
    ports = ("--publish-port", "0", "--management-port", "0")
    with Endpoint(_answer) as endpoint:
        process = Process(["dev", "--json", "--data", str(folder / "data"), *ports], variables)
        try:
            process.wait_ready()
            scene = Scene(process.ready["dcs"][0], endpoint.url)
            scene.set_up()
            yield scene
        finally:
            process.end()


# Of a module, because while it is open, no other asyncio loop can run in this thread.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: install it with `make chromium`")
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, scene: Scene) -> Iterator[Page]:
    with watched_page(browser, scene.management) as page:
        yield page


@pytest.fixture
def reads() -> str:
    """Whether people sign in: `authenticated`, `open` (to change something), or empty (nobody)."""
    return "authenticated"


@pytest.fixture
def desk(api: Api, reads: str) -> Desk:
    return Desk(api, reads)
