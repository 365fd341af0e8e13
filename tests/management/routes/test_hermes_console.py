"""The requests of each page of Hermes' console: their statuses, and the fields that it reads."""

import base64
import json
import random
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
import trio

from hermes_actors.config.tree import ConsoleConfig
from hermes_actors.coordination.commands import Join, TermClaim
from hermes_actors.log.base import TopicSettings
from hermes_actors.log.memory import MemoryLog
from hermes_actors.metadata.registry import Metadata, Registry
from hermes_actors.model.message import Message, to_record
from hermes_actors.model.topic import Ack
from hermes_actors.runtime.clock import seeded_ids
from hermes_actors.status.fold import StatusFold
from tests.management.coordination_scene import Followed
from tests.management.dead_letters_scene import Desk
from tests.management.routes.hermes_console_shapes import (
    CONSOLE,
    DIFFERENCES,
    FOUND,
    GROUP,
    STATS,
    SUBSCRIPTION_FIELDS,
    SUBSCRIPTION_METRICS,
    TOPIC_FIELDS,
    TOPIC_METRICS,
    TRACE,
)
from tests.management.statuses_scene import Nodes, consumed

DAY_MS = 86_400_000
TOPIC, SUBSCRIPTION = "/topics/shop.orders", "/topics/shop.orders/subscriptions/billing"
METADATA = {"type": "map", "values": "string"}
AVRO = {
    "type": "record",
    "name": "User",
    "fields": [{"name": "__metadata", "type": ["null", METADATA], "default": None}],
}

CONSTRAINTS = {"consumersNumber": 3, "reason": "a large one"}
TASK = {
    "type": "topic",
    "sourceTopic": "shop.orders",
    "targetTopic": "shop.users",
    "startTimestamp": "2026-01-01T10:00Z",
    "endTimestamp": "2026-01-02T10:00:00Z",
}
FILTERS = {
    "filters": [{"type": "jsonpath", "path": "$.a", "matcher": "1", "matchingStrategy": "all"}],
    "message": base64.b64encode(b'{"a":1}').decode(),
}


@dataclass
class Call:
    """One request of a page, and what the console needs of its answer."""

    where: str
    shape: Any = None
    body: Any = None
    status: int = 200


def like(name: str) -> dict[str, Any]:
    return {"query": {name: {"like": "(?i).*o.*"}}}


PAGES = {
    "every page": [
        Call("GET /console", CONSOLE),
        Call("GET /mode"),
        Call("GET /roles", [str]),
        Call("GET /search/query?q=orders", FOUND),
    ],
    "groups": [
        Call("GET /groups", [str]),
        Call("GET /topics", [str]),
        Call("POST /groups", None, {"groupName": "fresh"}, 201),
        Call("DELETE /groups/fresh"),
    ],
    "a topic": [
        Call(f"GET {TOPIC}", TOPIC_FIELDS),
        Call("GET /topics/shop.users", {**TOPIC_FIELDS, "schema": str}),
        Call("GET /owners/sources/Plaintext/sales", {"id": str, "name": str}),
        Call(f"GET {TOPIC}/preview", [{"content": str, "truncated": bool}]),
        Call(f"GET {TOPIC}/preview/cluster/dc1/partition/0/offset/0", {"message": int}),
        Call(f"GET {TOPIC}/metrics", TOPIC_METRICS),
        Call(f"GET {TOPIC}/subscriptions", [str]),
        Call(f"GET {TOPIC}/clients", [str]),
        Call("GET /roles/topics/shop.orders", [str]),
        Call("GET /dashboards/topics/shop.orders", {"url": str}),
        Call("GET /tracking-urls/topics/shop.orders", [{"name": str, "url": str}]),
        Call("POST /offline-retransmission/tasks", None, TASK, 201),
        Call(
            "GET /offline-retransmission/topics/shop.orders/tasks/",
            [{"type": str, "taskId": str, "logsUrl": str, "metricsUrl": str, "jobDetailsUrl": str}],
        ),
        Call(f"PUT {TOPIC}", None, {"description": "other"}),
    ],
    "the form of a topic": [
        Call("GET /owners/sources", [{"name": str, "autocomplete": bool, "deprecated": bool}]),
    ],
    "a subscription": [
        Call(f"GET {SUBSCRIPTION}", SUBSCRIPTION_FIELDS),
        Call(f"GET {SUBSCRIPTION}/metrics", SUBSCRIPTION_METRICS),
        Call(
            f"GET {SUBSCRIPTION}/health",
            {"status": str, "problems": [{"code": str, "description": str}]},
        ),
        Call(f"GET {SUBSCRIPTION}/undelivered", [{**TRACE, "messageId": str}]),
        Call(f"GET {SUBSCRIPTION}/undelivered/last", TRACE),
        Call("GET /roles/topics/shop.orders/subscriptions/billing", [str]),
        Call("GET /dashboards/topics/shop.orders/subscriptions/billing", {"url": str}),
        Call(
            "GET /tracking-urls/topics/shop.orders/subscriptions/billing",
            [{"name": str, "url": str}],
        ),
        Call("POST /filters/shop.orders", {"status": str}, FILTERS),
        Call(f"PUT {SUBSCRIPTION}/state", None, "SUSPENDED"),
        Call(
            f"PUT {SUBSCRIPTION}/retransmission?dryRun=true",
            {"dc1": [{"topic": {"value": str}, "partition": int, "offset": int}]},
            {"retransmissionDate": "2026-01-01T10:00:00.000Z"},
        ),
        Call(f"PUT {SUBSCRIPTION}/state", None, "ACTIVE"),
        Call(f"PUT {SUBSCRIPTION}", None, {"description": "other"}),
    ],
    "diagnostics": [Call(f"GET {SUBSCRIPTION}/consumer-groups", [GROUP])],
    "search": [
        Call("POST /query/topics", [TOPIC_FIELDS], like("owner.id") | like("name")),
        Call("POST /query/subscriptions", [SUBSCRIPTION_FIELDS], like("endpoint")),
    ],
    "statistics": [
        Call("GET /stats", STATS),
    ],
    "readiness": [
        Call("GET /readiness/datacenters", [{"datacenter": str, "status": str}]),
        Call("POST /readiness/datacenters/dc1", None, {"isReady": True}, 202),
    ],
    "constraints": [
        Call(
            "PUT /workload-constraints/topic",
            None,
            {"topicName": "shop.orders", "constraints": CONSTRAINTS},
            201,
        ),
        Call(
            "PUT /workload-constraints/subscription",
            None,
            {"subscriptionName": "shop.orders$billing", "constraints": CONSTRAINTS},
            201,
        ),
        Call(
            "GET /workload-constraints",
            {
                "topicConstraints": {"shop.orders": {"consumersNumber": int, "reason": str}},
                "subscriptionConstraints": {
                    "shop.orders$billing": {"consumersNumber": int, "reason": str}
                },
            },
        ),
        Call("DELETE /workload-constraints/topic/shop.orders"),
        Call("DELETE /workload-constraints/subscription/shop.orders/billing"),
    ],
    "inactive topics": [
        Call(
            "GET /inactive-topics",
            [
                {
                    "topic": str,
                    "lastPublishedTsMs": int,
                    "notificationTsMs": list,
                    "whitelisted": bool,
                }
            ],
        )
    ],
    "consistency": [
        Call("GET /consistency/groups", [str]),
        Call("GET /consistency/inconsistencies/groups?groupNames=shop&groupNames=a", DIFFERENCES),
        Call("GET /consistency/inconsistencies/topics", [str]),
        Call("DELETE /consistency/inconsistencies/topics?topicName=shop.stray"),
        Call("POST /consistency/sync/groups/shop?primaryDatacenter=dc1"),
        Call("POST /consistency/sync/topics/shop.orders?primaryDatacenter=dc1"),
        Call(
            "POST /consistency/sync/topics/shop.orders/subscriptions/billing?primaryDatacenter=dc1"
        ),
    ],
    "removal": [
        Call(f"DELETE {SUBSCRIPTION}"),
        Call(f"DELETE {TOPIC}"),
    ],
}


@pytest.fixture
async def world(api, nursery):
    """Two datacentres: dc2 knows nothing yet. Half a year after the topics were created."""
    rng = random.Random(2)
    remote = MemoryLog("dc2", api.clock)
    other = Metadata(remote, clock=api.clock, ids=seeded_ids(rng), rng=rng)
    nursery.start_soon(Registry(other).run, trio.Event())
    await other.wait_current()
    api.metadata.standins = (other,)
    fold = StatusFold()
    nodes = Nodes(fold, api.clock)
    followed = Followed(Join("b", "n1"), TermClaim("b", 1))
    followed.plan("shop.orders$billing", ("b", (0, 1)))
    links = {
        f"{of}_{kind}_url": f"https://{kind}.test/{{topic}}/{{subscription}}"
        for of in ("topic", "subscription")
        for kind in ("dashboard", "tracking")
    }
    management = msgspec.structs.replace(api.config.management, console=ConsoleConfig(**links))
    api.administered_with(
        config=msgspec.structs.replace(api.config, management=management),
        remote_logs=(remote,),
        datacenters=("dc2",),
        status=fold,
        coordinations={"dc1": followed},
    )
    await api.with_topic()
    await api.with_topic("shop.users", contentType="AVRO", schema=json.dumps(AVRO))
    await api.with_subscription()
    for log in (api.log, remote):
        await log.topics.create("shop.stray", TopicSettings())
    record = to_record(Message("m1", b"1", api.clock.ms, dc="dc1"))
    await api.log.append("shop.orders", 0, [record], Ack.LEADER)
    await Desk(api, remote).write(Desk(api, remote).letter(1))
    api.clock.ms += 180 * DAY_MS
    for dc in ("dc1", "dc2"):
        nodes.read(dc)
    nodes.tell("dc1", "n1", subscriptions=[consumed(open_letters=1)])
    return api


def misses(value: Any, shape: Any, at: str = "") -> list[str]:
    """Where the value lacks what the shape names."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return [f"{at} is no object"]
        return [
            each
            for name, inner in shape.items()
            for each in (
                misses(value[name], inner, f"{at}.{name}")
                if name in value
                else [f"{at}.{name} is missing"]
            )
        ]
    if isinstance(shape, list):
        if not isinstance(value, list) or not value:
            return [f"{at} is empty"]
        return [each for item in value[:1] for each in misses(item, shape[0], f"{at}[0]")]
    return [] if isinstance(value, shape) else [f"{at} is {value!r}"]


async def test_each_page_of_hermes_console_finds_what_it_reads(world):
    for page, calls in PAGES.items():
        for call in calls:
            verb, _, path = call.where.partition(" ")
            sent = {} if call.body is None else {"json": call.body}
            answer = await world.client.request(verb, path, **sent)
            assert answer.status_code == call.status, (page, call.where, answer.text)
            if call.shape is not None:
                assert misses(answer.json(), call.shape) == [], (page, call.where, answer.text)


async def test_urls_of_dashboards_and_tracking_are_filled_and_absent_by_default(world, api):
    shown = await world.get("/dashboards/topics/a.b%20c/subscriptions/d%3Fe")
    assert shown.json() == {"url": "https://dashboard.test/a.b%20c/d%3Fe"}
    assert (await world.get("/console")).json()["metrics"]["fetchingDashboardUrlEnabled"] is True
    api.administered_with()
    for path in ("topics/shop.orders", "topics/shop.orders/subscriptions/billing"):
        answer = await api.get(f"/dashboards/{path}")
        assert api.refusal(answer) == (404, "IMPLEMENTATION_ABSENT")
        assert (await api.get(f"/tracking-urls/{path}")).json() == []
    assert (await api.get("/console")).json()["metrics"]["fetchingDashboardUrlEnabled"] is False


async def test_subscriptions_without_an_owner_are_listed(world):
    path = "/monitoring/consumer-groups"
    assert (await world.get(path)).json() == []
    await world.with_subscription("lonely")
    await world.with_subscription("resting", state="SUSPENDED")
    lonely = {"topicName": "shop.orders", "subscription": "lonely"}
    assert (await world.get(path)).json() == [lonely]
