"""Every route, called in every role: the answers are as the table of access says."""

import re
from pathlib import Path

import msgspec
import pytest

from hermes_actors.config import Config, ManagementAuthenticationConfig, ManagementConfig
from hermes_actors.management.access.accounts import AccountProvider
from hermes_actors.management.access.table import RULES, Access, rule_of
from hermes_actors.management.http.openapi import REGISTRY
from hermes_actors.security.account import Account, Credentials
from hermes_actors.security.authenticator import Authenticator

ROOT = Path(__file__).parents[3]
SALES = frozenset({"sales"})
ACCOUNTS = {
    "stranger": Account("stranger"),
    "owner": Account("owner", groups=SALES),
    "admin": Account("admin", frozenset({"ADMIN"})),
    "read-only": Account("read-only"),
    "read-only owner": Account("read-only owner", frozenset({"READ_ONLY"}), SALES),
    "read-only admin": Account("read-only admin", frozenset({"READ_ONLY", "ADMIN"})),
}
OWNER = {"source": "Plaintext", "id": "sales"}
HELD = {"group": "shop", "topic": "shop.orders", "name": "billing", "subject": "shop.orders"}
HELD |= {"source": "Plaintext", "owner": "sales", "provider": "sso", "dc": "dc1", "node": "a"}
HELD |= {"version": "1", "schema_id": "1", "index": "0", "letter": "1", "message_id": "m"}
HELD |= {"cluster": "dc1", "partition": "0", "offset": "0", "task": "t"}
SUBSCRIPTION = "/topics/{topic}/subscriptions/{name}"
BODIES = {
    f"{SUBSCRIPTION}/state": "SUSPENDED",
    "/offline-retransmission/tasks": {
        "type": "topic",
        "sourceTopic": "shop.orders",
        "targetTopic": "shop.orders",
        "startTimestamp": "2023-01-01T00:00:00Z",
        "endTimestamp": "2023-01-02T00:00:00Z",
    },
    f"{SUBSCRIPTION}/dead-letters/expire": {"all": True},
    f"{SUBSCRIPTION}/dead-letters/redrive": {"all": True},
    f"{REGISTRY}/subjects/{{subject}}/versions": {"schema": '"int"'},
    f"{REGISTRY}/config/{{subject}}": {"compatibility": "NONE"},
}


def allowed(verb, path, role, *, guards_reads):
    """What the table says: 401, 403, or 0 for another answer."""
    access, changes = RULES[verb, path]
    if role == "guest":
        is_open = access is Access.OPEN or (access is Access.ANYONE and not guards_reads)
        return 0 if is_open else 401
    if changes and role.startswith("read-only"):
        return 403
    takes = {Access.ADMIN: ("admin",), Access.OWNER: ("owner", "admin")}.get(access)
    return 0 if takes is None or role.endswith(takes) else 403


class ByName:
    challenge = "Name"

    async def identify(self, credentials: Credentials) -> Account | None:
        return ACCOUNTS.get(credentials.authorization)

    async def run(self) -> None:
        return


@pytest.fixture
def authentication(request):
    reads = getattr(request, "param", "open")
    return ManagementAuthenticationConfig(enabled=True, reads=reads, read_only=["read-only"])


@pytest.fixture
async def secured(api, authentication):
    await api.post("/groups", {"groupName": "shop", "owner": OWNER})
    await api.post("/groups", {"groupName": "free"})
    await api.with_topic(schema='{"type": "object"}')
    await api.with_subscription(owner=OWNER)
    config = ManagementConfig(
        authentication=authentication, allow_removal=True, allow_schema_removal=True
    )
    api.config = msgspec.structs.replace(Config(), management=config)
    provider = AccountProvider(Authenticator([ByName()]), authentication)
    api.administered_with(security=provider)
    async with api.client as client:
        yield client


@pytest.mark.parametrize(
    ("authentication", "role"),
    # Who reads without an account makes no difference to who has one.
    [("open", "guest"), *(("authenticated", role) for role in ("guest", *ACCOUNTS))],
    indirect=["authentication"],
)
async def test_each_route_answers_each_role_as_the_table_says(
    secured, authentication, role, monkeypatch
):
    # No consumer is there to take a new position.
    monkeypatch.setattr("hermes_actors.management.offsets.retransmission.TAKEN_UP_WITHIN_S", 0.01)
    document = (await secured.get("/openapi.json")).json()
    routes = [(verb.upper(), path) for path, item in document["paths"].items() for verb in item]
    # Its owner is known only if there is such a task (test_offline_tasks.py).
    routes.remove(("DELETE", "/offline-retransmission/tasks/{task}"))
    # What removes something comes last, the parts of a thing before the thing.
    routes.sort(key=lambda each: (each[0] == "DELETE", -len(each[1])))
    # A stream of events that begins would never end.
    headers = {"last-event-id": "none"}
    headers |= {} if role == "guest" else {"authorization": role}
    found = {}
    for verb, path in routes:
        body = None if verb in ("GET", "DELETE") else BODIES.get(path, {})
        # Anybody may remove a group without an owner.
        held = HELD | {"group": "free"} if verb == "DELETE" else HELD
        answer = await secured.request(verb, path.format(**held), headers=headers, json=body)
        assert answer.status_code not in (405, 500), (verb, path, answer.text)
        found[verb, path] = answer.status_code if answer.status_code in (401, 403) else 0
    guards_reads = authentication.reads == "authenticated"
    assert found == {each: allowed(*each, role, guards_reads=guards_reads) for each in routes}


async def test_the_table_has_a_row_for_each_route_and_for_nothing_else(api):
    document = (await api.get("/openapi.json")).json()
    shown = {(verb.upper(), path) for path, item in document["paths"].items() for verb in item}
    rest = {path for _, path in RULES.keys() - shown if not path.startswith("/console/")}
    assert rest == {"/openapi.json", "/docs", "/graphql", REGISTRY, f"{REGISTRY}/{{rest}}"}
    with pytest.raises(LookupError, match="Add a row for GET /new"):
        rule_of("GET", "/new")


def rows_of_the_docs():
    """Yield verb, pattern of a path, and the cell that says whom it is allowed for."""
    page = (ROOT / "docs" / "management.md").read_text()
    (table,) = re.findall(r"\| Allowed for \|.*?\n\n", page, re.DOTALL)
    for row in re.findall(r"^\| ([A-Z].*?) \| (.*?) \|", table, re.MULTILINE):
        verbs = []
        for some, path in re.findall("((?:[A-Z]+(?:, )?)*) ?`(.+?)`", row[0]):
            verbs = some.split(", ") if some else verbs
            below = re.sub("^…", "/topics/.*", path.partition("?")[0]).replace("…", ".*")
            pattern = re.sub(r"{\w+}", "[^/]+", below)
            yield from ((verb, pattern, row[1]) for verb in verbs)


def said(cell, verb):
    """Who the docs say may call it."""
    parts = dict(re.findall("([A-Z]+): ([^;]+)", cell))
    text = parts.get(verb) or re.sub("[A-Z]+: [^;]+;? ?", "", cell) or "all"
    return "all" if "all" in text else "owner" if "owner" in text else text


def test_the_docs_say_what_the_table_says():
    rows = list(rows_of_the_docs())
    seen = 0
    for (verb, path), (access, _) in RULES.items():
        plain = re.sub(r"{\w+}", "x", path)
        found = [each for each in rows if each[0] == verb and re.fullmatch(each[1], plain)]
        # A row for exactly this path counts more than one for many.
        exact = [each for each in found if ".*" not in each[1]] or found
        told = access if access in (Access.OWNER, Access.ADMIN) else "all"
        assert {said(cell, verb) for _, _, cell in exact} <= {told}, (verb, path)
        seen += bool(exact)
    assert seen > 80


def test_whatever_changes_something_needs_an_account_except_signing_in_and_out():
    assert {
        each
        for each, (access, changes) in RULES.items()
        if changes and access in ("open", "anyone")
    } == {("POST", "/console/sign-in"), ("POST", "/console/sign-out")}


async def test_a_read_only_account_is_told_why(secured):
    answer = await secured.post("/mode?mode=readOnly", headers={"authorization": "read-only admin"})
    assert answer.json()["message"] == (
        "read-only admin may not call POST /mode: only an account that is not read-only may"
    )
    roles = await secured.get("/roles", headers={"authorization": "read-only admin"})
    assert roles.json() == ["any", "readOnly"]
