"""Which subscriptions are not well, over all topics."""

import pytest
import trio
from msgspec.structs import replace

from hermes_actors.status.fold import StatusFold
from hermes_actors.status.judging import judged
from hermes_actors.status.reasons import Code, because
from hermes_actors.status.record import Flow, NodeHeader, StatusRecord, SubscriptionStatus

NOW_MS = 1_700_000_000_000
FAILING = {"level": "SLOW", "last_failure": "HTTP 503", "last_failure_kind": "503"}
AWAY = {"reasons": (because(Code.LOG_AWAY, detail="away"),)}


@pytest.fixture
async def tell(api):
    """Three subscriptions of two topics, and what a node says of them."""
    fold = StatusFold()
    api.administered_with(status=fold)
    api.statuses_fold = fold
    await api.with_topic()
    await api.post("/topics", api.topic("shop.parcels"))
    await api.with_subscription()
    critical = {"monitoringDetails": {"severity": "CRITICAL", "reaction": ""}}
    for topic, name, more in (
        ("shop.orders", "audit", critical),
        ("shop.parcels", "billing", {"owner": {"source": "Plaintext", "id": "logistics"}}),
    ):
        body = api.subscription(name, topic, **more)
        assert (await api.post(f"/topics/{topic}/subscriptions", body)).status_code == 201

    def tell(**entries):
        fold.report("dc1", "", NOW_MS, trio.current_time())
        told = [
            SubscriptionStatus(name=name.replace("__", "$").replace("_", "."), **fields)
            for name, fields in entries.items()
        ]
        states = [(each, *judged(each, NOW_MS)) for each in told]
        told = [replace(each, state=state, reasons=why) for each, state, why in states]
        header = NodeHeader(
            node="n1", dc="dc1", boot_id="b", sequence=1, roles=("consumers",), written_at_ms=NOW_MS
        )
        fold.take("dc1", StatusRecord(header, (), tuple(told)), trio.current_time())

    return tell


async def rows(api, query=""):
    answer = await api.get(f"/status/subscriptions{query}")
    assert answer.status_code == 200
    return [(row["topicName"], row["name"]) for row in answer.json()["subscriptions"]]


ALL = [("shop.orders", "audit"), ("shop.orders", "billing"), ("shop.parcels", "billing")]


async def test_all_of_all_topics_have_a_row_sorted_as_asked(api, tell):
    letters = Flow(dead_letters=3)
    tell(
        shop_orders__billing={"lag": 9, "counts": letters, **FAILING},
        shop_orders__audit={"lag": 4},
        shop_parcels__billing={"lag": 70, "level": "FULL"},
    )
    assert await rows(api) == ALL
    assert await rows(api, "?topicName=shop.parcels") == ALL[2:]
    assert await rows(api, "?sort=lag") == [ALL[2], ALL[1], ALL[0]]
    assert (await rows(api, "?sort=state"))[0] == ALL[1]
    assert await rows(api, "?unhealthy=true") == [ALL[1]]
    refused = await api.get("/status/subscriptions?sort=colour")
    assert refused.status_code == 400
    assert "name, lag, rate, inflight, state" in api.message(refused)
    row = (await api.get("/status/subscriptions?unhealthy=true")).json()["subscriptions"][0]
    assert (row["condition"], row["rateLevel"], row["lag"]) == ("FAILING", "SLOW", 9)
    assert (row["deadLetters"], row["lastFailure"]) == (3, "HTTP 503")


async def test_topics_have_a_row_each_with_the_sums_of_their_subscriptions(api, tell):
    tell(
        shop_orders__audit={"lag": 4, "inflight": 7},
        shop_orders__billing={"lag": 9, "inflight": 1, "rates": Flow(delivered=1_500), **FAILING},
        shop_parcels__billing={"lag": -1},
    )
    first, last = (await api.get("/status/topics?sort=state")).json()["topics"]
    assert first == {
        "topicName": "shop.orders",
        "isKnown": True,
        "rate": 0.0,
        "throughput": 0.0,
        "rejectedRate": 0.0,
        "failedRate": 0.0,
        "owner": {"source": "Plaintext", "id": "sales"},
        "deliveryRate": 1.5,
        "lag": 13,
        "inflight": 8,
        "subscriptions": 2,
        "unhealthySubscriptions": 1,
    }
    assert (last["topicName"], last["lag"], last["subscriptions"]) == ("shop.parcels", 0, 1)
    (only,) = (await api.get("/status/topics?sort=name&limit=1")).json()["topics"]
    assert only["topicName"] == "shop.orders"
    assert (await api.get("/status/topics?sort=colour")).status_code == 400


async def test_what_is_stopped_or_fails_seldom_is_unhealthy_under_hermes_codes(api, tell):
    tell(
        shop_orders__audit=AWAY,
        shop_orders__billing={"lag": 1, **FAILING},
        shop_parcels__billing={"lag": 1, **FAILING, "last_failure_kind": "timeout"},
    )
    found = (await api.get("/unhealthy?respectMonitoringSeverity=false")).json()
    assert [(each["name"], each["problems"][0]["code"]) for each in found] == [
        ("audit", "LAGGING"),
        ("billing", "MALFUNCTIONING"),
        ("billing", "TIMING_OUT"),
    ]
    assert list(found[0]) == ["name", "topicName", "severity", "problems"]
    assert (await api.get("/topics/shop.orders/subscriptions/billing/health")).json()["status"] == (
        "UNHEALTHY"
    )


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["audit"]),
        ("?respectMonitoringSeverity=true", ["audit"]),
        ("?respectMonitoringSeverity=false&subscriptionNames=billing", ["billing", "billing"]),
        (
            "?respectMonitoringSeverity=false&qualifiedTopicNames=shop.orders&subscriptionNames=audit",
            ["audit"],
        ),
        (
            "?respectMonitoringSeverity=false&ownerSourceName=Plaintext&ownerId=logistics",
            ["billing"],
        ),
    ],
)
async def test_unhealthy_ones_are_chosen_as_in_hermes(api, tell, query, names):
    every = AWAY
    tell(shop_orders__audit=every, shop_orders__billing=every, shop_parcels__billing=every)
    assert [each["name"] for each in (await api.get(f"/unhealthy{query}")).json()] == names


async def test_unhealthy_ones_are_lines_of_text_for_who_wants_text(api, tell):
    tell(shop_orders__audit=AWAY, shop_orders__billing=AWAY)
    answer = await api.client.get(
        "/unhealthy?respectMonitoringSeverity=false", headers={"accept": "text/plain"}
    )
    assert answer.headers["content-type"].startswith("text/plain")
    text = "the log cannot be read: away (on dc1 n1)"
    assert answer.text == f"audit - {text}\r\nbilling - {text}"


async def test_while_a_datacentre_tells_nothing_what_is_well_elsewhere_is_unknown(api, tell):
    delivering = {"rates": Flow(delivered=2_000, codes_2xx=2_000)}
    tell(
        shop_orders__audit={"lag": 0, **delivering},
        shop_orders__billing={"lag": 5_000, **FAILING},
        shop_parcels__billing={"lag": 0},
    )
    api.statuses_fold.report("dc2", "it is away", NOW_MS, trio.current_time())
    found = (await api.get("/status/subscriptions")).json()["subscriptions"]
    assert [(row["condition"], row["lag"], row["rate"], row["isKnown"]) for row in found] == [
        ("UNKNOWN", -1, 2.0, False),
        ("FAILING", -1, 0.0, False),
        ("UNKNOWN", -1, 0.0, False),
    ]
    assert [each["code"] for each in found[2]["reasons"]] == ["DC_UNKNOWN", "IDLE"]
    # What is known of it is enough to say that too much waits.
    assert "LAGGING" in [each["code"] for each in found[1]["problems"]]
