"""Each field may be asked for by whoever may call its REST twin."""

import msgspec
import pytest

from hermes_actors.management.access.table import RULES, Access
from hermes_actors.management.graphql.fields import CALLS, field
from tests.management.access.test_table import (  # noqa: F401
    ACCOUNTS,
    allowed,
    authentication,
    secured,
)

AT = "/topics/{topic}/subscriptions/{name}"
HELD = 'topic: "shop.orders", name: "billing"'
ONE = f"{{ subscription({HELD}) {{ %s }} }}"
TOPIC = '{ topic(name: "shop.orders") { %s } }'
OWNER = '{source: "Plaintext", id: "sales"}'
BODY = f'description: "d", owner: {OWNER}'
TWINS = {
    "{ groups { groupName } }": ("POST", "/query/groups"),
    '{ group(name: "shop") { groupName } }': ("GET", "/groups/{group}"),
    "{ topics { name } }": ("POST", "/query/topics"),
    TOPIC % "name": ("GET", "/topics/{topic}"),
    TOPIC % "metrics": ("GET", "/topics/{topic}/metrics"),
    TOPIC % "schema": ("GET", "/topics/{topic}/schema"),
    TOPIC % "subscriptions { name }": ("GET", AT),
    "{ subscriptions { name } }": ("POST", "/query/subscriptions"),
    ONE % "name": ("GET", AT),
    ONE % "lag { lag }": ("GET", f"{AT}/lag"),
    ONE % "why { state }": ("GET", f"{AT}/why"),
    ONE % "metrics": ("GET", f"{AT}/metrics"),
    ONE % "deadLetters { next }": ("GET", f"{AT}/dead-letters"),
    "{ deadLetters { isComplete } }": ("GET", "/dead-letters"),
    'mutation { createGroup(group: {groupName: "-"}) { groupName } }': ("POST", "/groups"),
    f'mutation {{ createTopic(topic: {{name: "shop.new", contentType: "JSON", {BODY}, '
    "retentionTime: {duration: 1}}) { name } }": ("POST", "/topics"),
    f'mutation {{ createSubscription(subscription: {{topicName: "shop.orders", name: "n", {BODY}, '
    'endpoint: "https://a.example.com/"}) { name } }': ("POST", "/topics/{topic}/subscriptions"),
    f"mutation {{ suspend({HELD}) {{ state }} }}": ("PUT", f"{AT}/state"),
    f"mutation {{ activate({HELD}) {{ state }} }}": ("PUT", f"{AT}/state"),
    f'mutation {{ retransmit({HELD}, target: {{to: "end"}}, dryRun: true) {{ cluster }} }}': (
        "PUT",
        f"{AT}/retransmission",
    ),
    'mutation { publish(topic: "shop.orders", body: "{}") { id } }': (
        "POST",
        "/console/topics/{topic}/publish",
    ),
    'subscription { messages(topic: "shop.orders", follow: false) { id } }': (
        "GET",
        "/topics/{topic}/messages",
    ),
}


@pytest.fixture
def graphql(secured, api):  # noqa: F811
    management = msgspec.structs.replace(api.config.management, graphql_enabled=True)
    api.config = msgspec.structs.replace(api.config, management=management)
    api.administered_with(publish=None)
    return api


def test_each_field_is_tried():
    assert all(
        any(f"{name} " in f"{query} ".replace("(", " ") for query in TWINS) for name in CALLS
    )


@pytest.mark.parametrize(
    ("authentication", "role"),
    [("open", "guest"), *(("authenticated", role) for role in ("guest", *ACCOUNTS))],
    indirect=["authentication"],
)
async def test_each_field_answers_each_role_as_its_route(graphql, authentication, role):  # noqa: F811
    headers = {"accept": "text/event-stream"}
    headers |= {} if role == "guest" else {"authorization": role}
    guards_reads = authentication.reads == "authenticated"
    found, wanted = {}, {}
    for query, route in TWINS.items():
        answer = await graphql.post("/graphql", {"query": query}, headers=headers)
        status = answer.status_code
        if status == 200:
            text = answer.text
            status = 401 if '"status":401' in text else 403 if '"status":403' in text else 0
        found[query] = status
        wanted[query] = allowed(*route, role, guards_reads=guards_reads)
    assert found == wanted


@pytest.mark.parametrize("authentication", ["open", "authenticated"], indirect=True)
async def test_the_schema_is_for_those_who_may_read(graphql, authentication):  # noqa: F811
    answer = await graphql.post("/graphql", {"query": "{ __schema { types { name } } }"})
    assert answer.status_code == (401 if authentication.reads == "authenticated" else 200)


async def test_what_a_route_refuses_is_refused_here(graphql):
    suspend = {"query": f"mutation {{ suspend({HELD}) {{ state }} }}"}
    foreign = {"authorization": "admin", "origin": "https://evil.invalid"}
    answer = (await graphql.post("/graphql", suspend, headers=foreign)).json()
    assert answer["errors"][0]["extensions"]["code"] == "PERMISSION_DENIED"
    await graphql.administration.mode.set("readOnly")
    answer = (await graphql.post("/graphql", suspend, headers={"authorization": "owner"})).json()
    assert answer["errors"][0]["extensions"]["status"] == 503
    assert (await graphql.post("/graphql", suspend, headers={"authorization": "admin"})).json()[
        "data"
    ]["suspend"]


def test_a_field_names_a_route_of_the_table():
    with pytest.raises(LookupError, match="Add a row for GET /nothing"):
        field("GET /nothing", str)
    assert RULES["POST", "/graphql"].access is Access.ANYONE
