"""Management that asks who calls: 401, accounts as callers, open and guarded reads, the mode."""

import base64

import httpx
import msgspec
import pytest

from hermes_actors.config import Config, ManagementAuthenticationConfig, ManagementConfig
from hermes_actors.errors import Unavailable
from hermes_actors.management.access.accounts import AccountCaller, AccountProvider
from hermes_actors.management.administration import Administration, ClusterView
from hermes_actors.model.topic import Owner
from hermes_actors.security.account import Account, BadCredentials, Credentials
from hermes_actors.security.authenticator import Authenticator

ACCOUNTS = {
    "ada": Account("ada", frozenset({"ADMIN"})),
    "root": Account("root"),
    "sam": Account("sam", groups=frozenset({"sales"})),
    "fay": Account("fay", groups=frozenset({"finance"})),
    "sales": Account("sales"),
}
ADMIN, ROOT, SAM, FAY = (
    {"authorization": f"Name {each}"} for each in ("ada", "root", "sam", "fay")
)
BAD, AWAY = ({"authorization": f"Name {each}"} for each in ("bad", "away"))
TOPIC = "/topics/shop.orders"


class ByName:
    """Credentials are a name after the scheme `Name`."""

    def __init__(self, challenge: str) -> None:
        self.challenge = challenge

    async def identify(self, credentials: Credentials) -> Account | None:
        if credentials.scheme != "name":
            return None
        if credentials.parameter == "away":
            raise Unavailable("the directory is away")
        if credentials.parameter not in ACCOUNTS:
            raise BadCredentials("there is no such name")
        return ACCOUNTS[credentials.parameter]

    async def run(self) -> None:
        return


@pytest.mark.parametrize(
    ("settings", "account", "owned"),
    [
        ({}, "sam", {"sam", "sales"}),
        ({"owned_by": "name"}, "sam", {"sam"}),
        ({"owned_by": "groups"}, "sam", {"sales"}),
        ({"owner_sources": ["Ldap"]}, "sam", set()),
        ({}, "root", {"root"}),
    ],
)
def test_what_an_account_owns(settings, account, owned):
    caller = AccountCaller(ACCOUNTS[account], ManagementAuthenticationConfig(**settings))
    ids = {"sam", "sales", "root", "finance"}
    assert {each for each in ids if caller.owns(Owner("Plaintext", each))} == owned


@pytest.mark.parametrize(
    ("settings", "admins"),
    [
        ({}, {"ada"}),
        ({"admins": ["root"]}, {"ada", "root"}),
        ({"admins": ["root"], "admin_role": ""}, {"root"}),
        ({"admin_role": "OPS"}, set()),
    ],
)
def test_who_administers(settings, admins):
    config = ManagementAuthenticationConfig(**settings)
    found = {name for name, each in ACCOUNTS.items() if AccountCaller(each, config).is_admin}
    assert found == admins


@pytest.fixture
def authentication() -> ManagementAuthenticationConfig:
    """What a test may override."""
    return ManagementAuthenticationConfig(enabled=True, admins=["root"])


@pytest.fixture
async def secured(api, authentication):
    """The same management, behind accounts; its topic was made before."""
    await api.with_topic()
    management = ManagementConfig(allow_removal=True, authentication=authentication)
    config = msgspec.structs.replace(Config(), management=management)
    authenticator = Authenticator([ByName('Name realm="hermes"'), ByName('Other realm="x"')])
    provider = AccountProvider(authenticator, authentication)
    api.administration = Administration(
        api.metadata,
        api.log,
        config,
        api.clock,
        security=provider,
        pool=api.pool,
        view=ClusterView(datacenters=("dc2",)),
    )
    api.config = config
    async with api.rebuilt() as client:
        yield client


def is_challenge(answer: httpx.Response) -> bool:
    return (
        answer.status_code == 401
        and answer.headers["www-authenticate"] == 'Name realm="hermes", Other realm="x"'
        and list(answer.json()) == ["message", "code"]
        and answer.headers["access-control-allow-origin"] == "*"
    )


@pytest.mark.parametrize("headers", [{}, BAD, {"authorization": "Basic abc"}])
async def test_who_changes_something_needs_good_credentials(secured, headers):
    for method, path, body in (
        ("POST", "/groups", {"groupName": "new"}),
        ("PUT", TOPIC, {"description": "x"}),
        ("DELETE", TOPIC, None),
        ("GET", f"{TOPIC}/messages", None),
        ("POST", "/mode?mode=readOnly", None),
        ("GET", "/readiness/datacenters", None),
    ):
        content = {} if body is None else {"json": body}
        assert is_challenge(await secured.request(method, path, headers=headers, **content)), path


async def test_a_directory_that_is_away_is_unavailable_and_not_bad(secured):
    answer = await secured.put(TOPIC, json={"description": "x"}, headers=AWAY)
    assert answer.status_code == 503


@pytest.mark.parametrize("first", ["Name bad", "Name ada", ""])
async def test_credentials_that_are_shown_twice_are_nobodys(secured, first):
    headers = [("Authorization", first), ("authorization", "Name ada")]
    for method, path in (("PUT", TOPIC), ("POST", "/mode?mode=readOnly"), ("GET", "/roles")):
        content = {"json": {"description": "x"}} if method == "PUT" else {}
        answer = await secured.request(method, path, headers=headers, **content)
        assert (answer.status_code, answer.json()["code"]) == (400, "VALIDATION_ERROR")
        assert "Authorization" in answer.json()["message"]
    assert (await secured.get("/mode")).text == "readWrite"


class TestGuardedReads:
    @pytest.fixture
    def authentication(self):
        return ManagementAuthenticationConfig(enabled=True, reads="authenticated")

    async def test_reading_needs_an_account_too(self, secured):
        for path in ("/groups", TOPIC, "/stats", "/status/nodes", "/mode", "/nothing"):
            answer = await secured.get(path)
            if path != "/nothing":
                assert is_challenge(answer), path
            assert (await secured.get(path, headers=BAD)).status_code in (401, 404)
        assert (await secured.get(TOPIC, headers=FAY)).status_code == 200

    async def test_probes_need_none(self, secured):
        pages = ("/status/health", "/status/prometheus", "/openapi.json", "/roles")
        for path in (*pages, "/livez", "/startupz", "/readyz"):
            assert (await secured.get(path)).status_code == 200, path
        assert (await secured.options("/groups")).status_code == 204


class TestTheMode:
    async def test_it_is_read_write_and_administrators_switch_it(self, secured):
        assert (await secured.get("/mode")).text == "readWrite"
        assert (await secured.post("/mode?mode=readOnly", headers=SAM)).status_code == 403
        answer = await secured.post("/mode?mode=sometimes", headers=ADMIN)
        assert (answer.status_code, answer.json()["code"]) == (400, "VALIDATION_ERROR")
        assert (await secured.post("/mode", headers=ADMIN)).status_code == 400
        for mode, shown in (
            ("readOnly", "readOnlyAdmin"),
            ("readWrite", "readWrite"),
            ("readOnlyAdmin", "readOnlyAdmin"),
        ):
            assert (await secured.post(f"/mode?mode={mode}", headers=ADMIN)).status_code == 200
            answer = await secured.get("/mode")
            assert answer.text == shown
            assert answer.headers["content-type"].startswith("text/plain")

    async def test_in_read_only_mode_administrators_alone_change_something(self, secured):
        await secured.post("/mode?mode=readOnly", headers=ADMIN)
        patch = {"description": "new"}
        answer = await secured.put(TOPIC, json=patch, headers=SAM)
        said = {"message": "Action forbidden due to read-only mode", "code": "OTHER"}
        assert (answer.status_code, answer.json()) == (503, said)
        assert is_challenge(await secured.put(TOPIC, json=patch))
        assert (await secured.put(TOPIC, json=patch, headers=ADMIN)).status_code == 200
        assert (await secured.get(TOPIC)).status_code == 200
        assert (await secured.post("/mode?mode=readWrite", headers=SAM)).status_code == 403
        # A query changes nothing; a name that ends like one is none.
        asked = await secured.post("/query/topics", json={"query": {}}, headers=SAM)
        assert asked.status_code == 200
        answer = await secured.put("/topics/shop.query", json=patch, headers=SAM)
        assert answer.status_code == 503
        await secured.post("/mode?mode=readWrite", headers=ADMIN)
        assert (await secured.put(TOPIC, json=patch, headers=SAM)).status_code == 200


class TestReadiness:
    PATH = "/readiness/datacenters"

    async def test_every_datacentre_is_ready_until_it_is_marked(self, secured, api):
        ready = [{"datacenter": dc, "status": "READY"} for dc in ("dc1", "dc2")]
        assert (await secured.get(self.PATH, headers=ADMIN)).json() == ready
        for is_ready, shown in ((False, "NOT_READY"), (False, "NOT_READY"), (True, "READY")):
            answer = await secured.post(
                f"{self.PATH}/dc2", json={"isReady": is_ready}, headers=ADMIN
            )
            assert (answer.status_code, answer.content) == (202, b"")
            found = (await secured.get(self.PATH, headers=ADMIN)).json()
            assert found == [ready[0], {"datacenter": "dc2", "status": shown}]
            assert api.metadata.catalog.is_ready("dc2") is is_ready
            assert api.metadata.catalog.is_ready("dc1")

    async def test_it_is_the_administrators(self, secured):
        assert (await secured.get(self.PATH, headers=SAM)).status_code == 403
        answer = await secured.post(f"{self.PATH}/dc2", json={"isReady": False}, headers=SAM)
        assert answer.status_code == 403

    @pytest.mark.parametrize(
        ("dc", "body", "code"),
        [
            ("dc9", {"isReady": False}, "VALIDATION_ERROR"),
            ("dc2", {"isReady": "no"}, "FORMAT_ERROR"),
            ("dc2", {}, "FORMAT_ERROR"),
        ],
    )
    async def test_a_wrong_mark_is_refused(self, secured, dc, body, code):
        answer = await secured.post(f"{self.PATH}/{dc}", json=body, headers=ADMIN)
        assert (answer.status_code, answer.json()["code"]) == (400, code)


async def test_no_credentials_are_logged(secured, caplog):
    caplog.set_level("DEBUG")
    token = base64.b64encode(b"very-secret").decode()
    await secured.put(TOPIC, json={}, headers={"authorization": f"Name {token}"})
    assert token not in caplog.text
