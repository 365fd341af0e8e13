"""The console in process, over the management API of a test. Its apps are shared by all tests,
because building one takes longer than most tests.
"""

import base64
import random
import re
from typing import Any

import httpx
import msgspec

from hermes_actors.config import Config, ManagementAuthenticationConfig, ManagementConfig
from hermes_actors.console.console import Console
from hermes_actors.console.front import Front
from hermes_actors.console.history import History
from hermes_actors.console.routes import console_routes
from hermes_actors.console.sessions import Sessions
from hermes_actors.management.access.accounts import AccountProvider
from hermes_actors.management.app import build_app
from hermes_actors.runtime.clock import seeded_ids
from hermes_actors.security.account import Account, BadCredentials, Credentials
from hermes_actors.security.authenticator import Authenticator
from tests.management.conftest import Api
from tests.management.shared_apps import StandIn

PASSWORD = "correct horse"
TOKEN = "header.payload.signature"
HERE = {"origin": "http://localhost"}
"""What a browser sends with a form of the console's own page."""


class Names:
    """Everybody has the same password; `grace` has a token too. `ada` is an administrator."""

    challenge = 'Basic realm="test"'

    def __init__(self) -> None:
        self.password = PASSWORD

    async def identify(self, credentials: Credentials) -> Account | None:
        if credentials.scheme == "bearer" and credentials.parameter == TOKEN:
            return Account("grace")
        if credentials.scheme != "basic":
            return None
        name, _, password = base64.b64decode(credentials.parameter).decode().partition(":")
        if password != self.password:
            raise BadCredentials("The user's name or password is wrong")
        return Account(name, frozenset({"ADMIN"}) if name == "ada" else frozenset())

    async def run(self) -> None:
        return


_shown: dict[str, Any] = {}
_apps: dict[bytes, tuple[Any, Sessions]] = {}


def _app(config: Config) -> tuple[Any, Sessions]:
    key = msgspec.json.encode(config)
    if key not in _apps:

        def part(name: str) -> Any:
            return StandIn(lambda: _shown[name])

        parts, bridge, clock = part("parts"), part("bridge"), part("clock")
        sessions = Sessions("dc1/node1", clock, seeded_ids(random.Random(7)))

        def pages(gate: Any) -> list[Any]:
            return [console_routes(Console(gate, parts, config, clock, sessions, part("history")))]

        _apps[key] = build_app(parts, bridge, config, (), pages), sessions
    return _apps[key]


class Desk:
    """A console with accounts, or without (`reads` empty). Not for two tests at a time."""

    def __init__(self, api: Api, reads: str) -> None:
        self.api = api
        self.names = Names()
        config = api.config
        if reads:
            authentication = ManagementAuthenticationConfig(enabled=True, reads=reads)
            management = ManagementConfig(authentication=authentication, allow_removal=True)
            config = msgspec.structs.replace(Config(), management=management)
            provider = AccountProvider(Authenticator([self.names]), authentication)
            api.administered_with(security=provider)
        _shown.update(
            parts=api.administration,
            bridge=api.bridge,
            clock=api.clock,
            history=History(api.administration.statuses.figures),
        )
        app, self.sessions = _app(config)
        self.app = Front(app, self.sessions)
        self.browser = self.new_browser()

    def new_browser(self) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(app=self.app)
        return httpx.AsyncClient(transport=transport, base_url="http://localhost")

    async def get(self, path: str, **kwargs: Any) -> httpx.Response:
        return await self.browser.get(path, **kwargs)

    async def send(self, path: str, form: dict[str, str], **headers: str) -> httpx.Response:
        """Send a form as a browser does it from the console's own page."""
        return await self.browser.post(path, data=form, headers=HERE | headers)

    async def sign_in(self, name: str = "ada", **form: str) -> httpx.Response:
        return await self.send("/console/sign-in", {"name": name, "password": PASSWORD} | form)


def heading(answer: httpx.Response) -> str:
    found = re.search("<h1>(.*?)</h1>", answer.text)
    assert found is not None, answer.text
    return found[1]
