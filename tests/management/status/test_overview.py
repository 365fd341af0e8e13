"""Which subscriptions are not well, over all topics."""

import pytest
import trio

from hermes_actors.management.status.overview import Overview, OverviewQuery
from hermes_actors.model.topic import Owner
from hermes_actors.status.fold import GONE_AFTER_S, StatusFold
from hermes_actors.status.record import Flow, NodeHeader, StatusRecord, SubscriptionStatus
from tests.hand_clock import HandClock

NOW_MS = 1_700_000_000_000
FAILING = {"level": "SLOW", "held_back": "it fails", "last_failure": "HTTP 503"}


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
        told = tuple(
            SubscriptionStatus(name.replace("__", "$").replace("_", "."), **fields)
            for name, fields in entries.items()
        )
        header = NodeHeader(
            node="n1", dc="dc1", boot_id="b", sequence=1, roles=("consumers",), written_at_ms=NOW_MS
        )
        fold.take("dc1", StatusRecord(header, (), told), NOW_MS, trio.current_time())

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


async def test_only_the_first_ones_are_told_if_so_asked(api, tell):
    tell(
        shop_orders__audit={"lag": 4, "inflight": 7},
        shop_orders__billing={"inflight": 1, "waiting_retries": 5},
    )
    assert await rows(api, "?sort=inflight&limit=2") == ALL[:2]
    assert (await api.get("/status/subscriptions?limit=0")).status_code == 400
    first = (await api.get("/status/subscriptions")).json()["subscriptions"][1]
    assert (first["inflight"], first["waitingRetries"]) == (1, 5)


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
        shop_orders__audit={"why": "the log cannot be read"},
        shop_orders__billing={"lag": 1, **FAILING},
        shop_parcels__billing={"lag": 1, **FAILING, "last_failure": "timeout"},
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
    every = {"why": "the log cannot be read"}
    tell(shop_orders__audit=every, shop_orders__billing=every, shop_parcels__billing=every)
    assert [each["name"] for each in (await api.get(f"/unhealthy{query}")).json()] == names


async def test_unhealthy_ones_are_lines_of_text_for_who_wants_text(api, tell):
    tell(shop_orders__audit={"why": "away"}, shop_orders__billing={"why": "off"})
    answer = await api.client.get(
        "/unhealthy?respectMonitoringSeverity=false", headers={"accept": "text/plain"}
    )
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.text == "audit - away (on dc1 n1)\r\nbilling - off (on dc1 n1)"


async def test_a_suspended_one_is_unhealthy_only_where_the_broker_has_suspended_it(api, tell):
    tell(shop_orders__billing={"why": "suspended"})
    await api.put("/topics/shop.orders/subscriptions/billing/state", "SUSPENDED")
    assert await rows(api, "?unhealthy=true") == []
    live = api.metadata.catalog.subscriptions["shop.orders$billing"]
    assert live.subscription.owner == Owner("Plaintext", "finance")


async def test_why_tells_the_whole_rate_and_what_a_time_out_goes_by(api, tell):
    timed_out = {**FAILING, "last_failure": "timeout"}
    tell(shop_orders__billing=timed_out, shop_orders__audit={"last_failure": "timeout"})
    path = "/topics/shop.orders/subscriptions"
    (failing,) = (await api.get(f"{path}/billing/why")).json()["datacenters"][0]["nodes"]
    assert failing["rateMax"] == 400
    assert "subscriptionPolicy.requestTimeout gives the endpoint 1000 ms" in failing["hint"]
    (well,) = (await api.get(f"{path}/audit/why")).json()["datacenters"][0]["nodes"]
    assert "rateMax" not in well
    assert "hint" not in well


async def test_why_tells_how_long_ago_a_node_was_heard_of(autojump_clock, api, tell):
    tell(shop_orders__billing={})
    await trio.sleep(5)
    why = "/topics/shop.orders/subscriptions/billing/why"
    (node,) = (await api.get(why)).json()["datacenters"][0]["nodes"]
    assert node["heardAgoMs"] == 5_000
    # Silent for longer it is gone, and its row with it.
    await trio.sleep(GONE_AFTER_S - 5)
    assert (await api.get(why)).json()["datacenters"][0]["nodes"] == []


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
    assert found[2]["reason"] == (
        "the status of dc2 is unknown; elsewhere: there is nothing to deliver"
    )
    # What is known of it is enough to say that too much waits.
    assert "LAGGING" in [each["code"] for each in found[1]["problems"]]


async def test_a_node_that_cannot_tell_what_waits_does_not_say_that_nothing_does(api, tell):
    tell(shop_orders__billing={"lag": -1}, shop_orders__audit={"lag": 0})
    audit, billing, _ = (await api.get("/status/subscriptions")).json()["subscriptions"]
    assert (audit["condition"], audit["lag"]) == ("IDLE", 0)
    assert (billing["condition"], billing["lag"]) == ("UNKNOWN", -1)
    assert billing["reason"] == "nothing is under way; how many messages wait is not known"


class SlowStatuses:
    """Stands for statuses whose rows take so long."""

    def __init__(self, clock, took_s=0.1):
        self.clock = clock
        self.took_s = took_s
        self.made = []

    def summary(self, live):
        self.clock.pass_time(self.took_s)
        self.made.append(str(live.name))
        return {"topicName": str(live.name.topic), "name": live.name.name, "problems": []}

    def datacenters(self):
        return []


async def test_whoever_looks_again_soon_gets_the_rows_that_took_long_to_make(api, tell):
    tell()
    metadata, clock = api.metadata, HandClock()
    slow = SlowStatuses(clock)
    overview = Overview(metadata, slow, clock)
    everything = OverviewQuery()
    first = await overview.rows(everything)
    assert await overview.rows(everything) == first
    assert (await overview.rows(OverviewQuery(names=["audit"])))["subscriptions"] != []
    assert len(slow.made) == len(ALL)
    # What has changed is shown at once.
    await api.put("/topics/shop.orders/subscriptions/audit", {"description": "changed"})
    await overview.rows(everything)
    assert slow.made[len(ALL) :] == ["shop.orders$audit"]
    clock.pass_time(10 * 0.1 * len(slow.made) - clock.passed_s)
    await overview.rows(everything)
    assert len(slow.made) == 2 * len(ALL) + 1


async def test_rows_that_took_no_time_are_made_anew(api, tell):
    tell()
    clock = HandClock()
    quick = SlowStatuses(clock, took_s=0.01)
    overview = Overview(api.metadata, quick, clock)
    for looks in (1, 2):
        await overview.rows(OverviewQuery())
        assert len(quick.made) == looks * len(ALL)
