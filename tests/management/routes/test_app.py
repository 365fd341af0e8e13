"""What holds for every route: errors, media types, CORS, the OpenAPI document, status."""

import json
import re
from functools import partial

import jsonschema_rs
import pytest
import trio
import trio.testing
from openapi_spec_validator import OpenAPIV31SpecValidator

from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_actors.status.dependencies import Dependency, probed


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/", 404),
        ("GET", "/schema", 404),
        ("GET", "/topics/a.b/nothing", 404),
        ("PATCH", "/groups", 405),
        ("PUT", "/groups", 405),
        ("POST", "/groups/shop", 405),
        ("DELETE", "/topics", 405),
        ("HEAD", "/topics/a.b/messages", 405),
    ],
)
async def test_unknown_routes_and_verbs_are_refused_with_code_other(api, method, path, status):
    answer = await api.client.request(method, path)
    assert answer.status_code == status
    if method != "HEAD":
        assert api.refusal(answer) == (status, "OTHER")


WRITES = [
    ("POST", "/groups"),
    ("PUT", "/groups/shop"),
    ("POST", "/topics"),
    ("PUT", "/topics/shop.orders"),
    ("POST", "/topics/shop.orders/subscriptions"),
    ("PUT", "/topics/shop.orders/subscriptions/billing"),
    ("PUT", "/topics/shop.orders/subscriptions/billing/state"),
]


@pytest.mark.parametrize(("method", "path"), WRITES)
async def test_another_media_type_is_415(api, method, path):
    answer = await api.client.request(
        method, path, content=b"{}", headers={"content-type": "text/plain"}
    )
    assert api.refusal(answer) == (415, "VALIDATION_ERROR")


@pytest.mark.parametrize(("method", "path"), WRITES)
@pytest.mark.parametrize("body", [b"{", b"", b"[1]", b"5"])
async def test_what_is_not_the_json_wanted_is_a_format_error(api, method, path, body):
    answer = await api.client.request(
        method, path, content=body, headers={"content-type": "application/json; charset=utf-8"}
    )
    assert api.refusal(answer) == (400, "FORMAT_ERROR")


async def test_a_body_above_the_bound_is_413(api):
    answer = await api.client.post("/groups", content=b" " * 1_048_577)
    assert api.refusal(answer) == (413, "OTHER")
    said = api.message(answer)
    assert "1048577 bytes" in said
    assert "at most 1048576, a fixed limit" in said


async def test_a_query_parameter_is_named_as_its_client_wrote_it(api):
    path = "/topics/shop.orders/subscriptions/billing/retransmission?dryRun=perhaps"
    answer = await api.put(path, {"to": "end"})
    assert api.refusal(answer) == (400, "VALIDATION_ERROR")
    assert api.message(answer) == "query parameter dryRun: Expected `bool`, got `str`"
    answer = await api.get("/topics/shop.orders/messages?last=few")
    assert api.message(answer) == "query parameter last: Expected `int | null`, got `str`"


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/groups"), ("GET", "/nothing"), ("OPTIONS", "/topics/a.b")]
)
async def test_every_answer_carries_the_cors_headers(api, method, path):
    headers = (await api.client.request(method, path)).headers
    assert headers["access-control-allow-origin"] == "*"
    assert headers["access-control-allow-methods"] == "POST,PUT,GET,HEAD,DELETE"
    assert headers["access-control-max-age"] == "1209600"
    assert headers["access-control-allow-headers"] == (
        "X-Requested-With, Content-Type, Accept, Origin, Authorization, Hermes-Admin-Password, "
        "Hermes-Change-Reason"
    )


async def test_head_answers_like_get_without_a_body(api):
    get, head = await api.get("/stats"), await api.client.head("/stats")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == get.headers["content-length"]


async def test_a_defect_is_500_other_and_goes_to_the_log(api, caplog):
    async def broken() -> None:
        raise ZeroDivisionError("secret detail")

    api.administration.overview.stats = broken
    async with api.rebuilt() as client:
        answer = await client.get("/stats")
    assert api.refusal(answer) == (500, "OTHER")
    assert "secret detail" not in answer.text
    assert "secret detail" in caplog.text


@pytest.mark.slow
async def test_the_openapi_document_is_valid_and_describes_every_route(
    api,
):
    document = (await api.get("/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    assert {(verb, path) for path, item in document["paths"].items() for verb in item} >= {
        ("get", "/groups"),
        ("post", "/groups"),
        ("put", "/groups/{group}"),
        ("delete", "/groups/{group}"),
        ("get", "/topics"),
        ("post", "/topics"),
        ("put", "/topics/{topic}"),
        ("delete", "/topics/{topic}"),
        ("get", "/topics/{topic}/messages"),
        ("post", "/topics/{topic}/subscriptions"),
        ("put", "/topics/{topic}/subscriptions/{name}/state"),
    }
    assert list(OpenAPIV31SpecValidator(document).iter_errors()) == []
    topic = document["components"]["schemas"]["Topic"]
    assert topic["properties"]["maxMessageSize"]["default"] == 51200
    assert document["components"]["schemas"]["TopicPatch"]["required"] == []
    text = (await api.get("/openapi.json")).text
    # Whatever a reader's tools load, it is not from elsewhere.
    assert set(re.findall('https?://([^/"]+)', text)) <= {"billing.example.com", "id.example.com"}


async def test_generators_of_clients_can_take_the_openapi_document(api):
    document = (await api.get("/openapi.json")).json()
    operations = [each for item in document["paths"].values() for each in item.values()]
    names = [each["operationId"] for each in operations] + list(document["components"]["schemas"])
    assert all(name.isidentifier() for name in names)
    assert len({name.lower() for name in names}) == len(names)
    assert list(document["paths"]) == sorted(document["paths"])
    for operation in operations:
        assert len(operation["tags"]) == 1
        assert min(operation["responses"]) < "300"
        assert operation["responses"].keys() >= {"4XX", "5XX"}
        for each in operation.get("parameters", ()):
            assert each["schema"].keys() & {"type", "$ref"}, each


async def test_each_answer_is_as_the_openapi_document_says(api):
    document = (await api.get("/openapi.json")).json()
    avro = {"type": "record", "name": "Order", "fields": []}
    await api.with_topic("shop.orders", schema='{"type": "object"}')
    await api.with_topic("shop.plain")
    await api.with_subscription()
    provider = {"name": "sso", "tokenEndpoint": "http://x.test/", "clientId": "c"}
    delays = {"tokenRequestInitialDelay": 1, "tokenRequestMaxDelay": 1, "requestTimeout": 100}
    constraint = {"topicName": "shop.orders", "constraints": {"consumersNumber": 1}}
    registry = "/schema-registry/subjects/{subject}"
    letters = "/topics/{topic}/subscriptions/{name}/dead-letters"
    asked = [(200, "get", path, None) for path, item in document["paths"].items() if "get" in item]
    asked += [
        (201, "post", "/oauth/providers", provider | delays | {"clientSecret": "s"}),
        (201, "put", "/workload-constraints/topic", constraint),
        (200, "put", "/workload-constraints/topic", constraint),
        (200, "delete", "/workload-constraints/topic/{topic}", None),
        (200, "put", "/topics/{topic}", {"description": "of old"}),
        (200, "put", "/topics/{topic}/subscriptions/{name}/state", "SUSPENDED"),
        (200, "post", letters + "/redrive", {"all": True, "dryRun": True}),
        (200, "post", registry + "/versions", {"schema": json.dumps(avro)}),
        (404, "post", registry, {"schema": '"int"'}),
    ]
    holds = {"topic": "shop.orders", "name": "billing", "group": "shop", "provider": "sso"}
    holds |= {"source": "Plaintext", "owner": "sales", "subject": "users", "version": "1"}
    holds |= {"index": "9", "letter": "1", "message_id": "m", "schema_id": "5", "dc": "dc1"}
    holds |= {"cluster": "dc1", "partition": "0", "offset": "0"}
    # A stream of events that begins would never end.
    admin = {"x-user": "admin", "last-event-id": "none"}
    seen = []
    for status, verb, path, body in sorted(asked, key=lambda each: each[1] == "get"):
        answer = await api.client.request(verb, path.format(**holds), json=body, headers=admin)
        seen.append(answer.status_code)
        assert verb == "get" or answer.status_code == status, (path, answer.text)
        responses = document["paths"][path][verb]["responses"]
        told = responses.get(str(answer.status_code)) or responses[f"{answer.status_code // 100}XX"]
        name = told.get("$ref", "").rpartition("/")[2]
        content = document["components"]["responses"].get(name, told).get("content")
        if content is None:
            assert answer.content == b"", path
            continue
        media_type = answer.headers["content-type"].partition(";")[0]
        schema = content[media_type]["schema"]
        if media_type.endswith(("/json", "+json")):
            jsonschema_rs.validate({**document, **schema}, answer.json())
    assert seen.count(200) > 60
    plain = await api.get("/topics/shop.plain/schema")
    told = document["paths"]["/topics/{topic}/schema"]["get"]["responses"]
    assert "content" not in told[str(plain.status_code)]


async def test_the_openapi_document_asks_for_a_subscription_only_where_one_is_taken(api):
    paths = (await api.get("/openapi.json")).json()["paths"]
    whole = {"$ref": "#/components/schemas/Subscription"}

    def schema(told):
        return told["content"]["application/json"]["schema"]

    assert {
        path.partition("/subscriptions")[2]
        for path, item in paths.items()
        for operation in item.values()
        if "requestBody" in operation and schema(operation["requestBody"]) == whole
    } == {""}
    signing = "/topics/{topic}/subscriptions/{name}/signing"
    rotate = paths[signing + "/rotate"]["post"]
    assert schema(rotate["requestBody"]) == {"$ref": "#/components/schemas/NewSecret"}
    assert "requestBody" not in paths[signing + "/retire"]["post"]


async def test_health_tells_of_commands_that_could_not_be_decoded(api):
    garbage = Record(None, b"garbage", (), 0)
    await api.log.append(api.metadata.topic, 0, [garbage], Ack.ALL)
    with trio.fail_after(10):
        while not (answer := await api.get("/status/health")).json().get("notices"):
            await trio.testing.wait_all_tasks_blocked()
    assert answer.status_code == 200
    (notice,) = answer.json()["notices"]
    assert notice.startswith("1 commands of the metadata log of dc1 had no effect")


async def test_probes_are_answered_as_the_node_answers_them_on_its_own_port(api):
    found = [Dependency("log", "it is away", is_needed=True)]
    api.administration.health.probe = partial(probed, found=found, is_started=False)
    for path, status in (("/livez", 200), ("/startupz", 503), ("/readyz", 503)):
        answer = await api.get(path)
        text = probed(path, found, is_started=False).text
        assert (answer.status_code, answer.text) == (status, text), path
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    found.clear()
    assert (await api.get("/readyz?verbose")).status_code == 200


async def test_prometheus_shows_the_metrics_given(api):
    api.metrics.counter("changes").add(3)
    answer = await api.get("/status/prometheus")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "hermes_test_changes_total 3" in answer.text


async def test_owner_sources_are_listed_and_looked_up(api):
    listed = [{"name": "Plaintext", "autocomplete": False, "deprecated": False}]
    assert (await api.get("/owners/sources")).json() == listed
    found = await api.get("/owners/sources/Plaintext/sales")
    assert found.json() == {"id": "sales", "name": "sales"}
    search = await api.get("/owners/sources/Plaintext?search=s")
    assert api.refusal(search) == (400, "OWNER_SOURCE_DOESNT_SUPPORT_AUTOCOMPLETE")
    for path in ("/owners/sources/Ldap", "/owners/sources/Ldap/sales"):
        assert api.refusal(await api.get(path)) == (404, "OWNER_SOURCE_NOT_FOUND")


async def test_stats_count_by_kind(api):
    await api.with_topic("shop.orders", ack="ALL")
    await api.with_topic("shop.returns", trackingEnabled=True)
    await api.with_subscription(trackingMode="discardedOnly")
    await api.with_subscription("audit")
    assert (await api.get("/stats")).json() == {
        "topicStats": {
            "topicCount": 2,
            "ackAllTopicCount": 1,
            "trackingEnabledTopicCount": 1,
            "avroTopicCount": 0,
        },
        "subscriptionStats": {
            "subscriptionCount": 2,
            "trackingEnabledSubscriptionCount": 1,
            "avroSubscriptionCount": 0,
        },
    }
