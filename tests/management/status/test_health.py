"""Health, by Hermes' limits."""

import pytest

from hermes_actors.status.reasons import Code, because
from hermes_actors.status.record import LastUndelivered, Published, TopicStatus
from tests.management.statuses_scene import SUBSCRIPTION, consumed


@pytest.mark.parametrize(
    ("rates", "fields", "codes"),
    [
        ({"codes_2xx": 100, "delivered": 100}, {}, []),
        ({"codes_2xx": 89, "timeouts": 11}, {}, ["TIMING_OUT"]),
        ({"codes_2xx": 90, "timeouts": 10}, {}, []),
        ({"codes_2xx": 89, "codes_5xx": 11}, {}, ["MALFUNCTIONING"]),
        ({"codes_2xx": 49, "other_errors": 51}, {}, ["UNREACHABLE"]),
        # Nothing is delivered at all: that is not too little to judge.
        ({"other_errors": 10}, {}, ["UNREACHABLE"]),
        ({"codes_4xx": 50, "codes_2xx": 50}, {}, []),
        ({"codes_5xx": 1}, {}, []),
        ({"codes_2xx": 1}, {"lag": 6_000}, []),
        ({"codes_2xx": 1}, {"lag": 6_001}, ["LAGGING"]),
        ({}, {"lag": -1}, []),
        (
            {"timeouts": 60, "codes_5xx": 60, "other_errors": 200},
            {"lag": 10**6},
            ["LAGGING", "UNREACHABLE", "TIMING_OUT", "MALFUNCTIONING"],
        ),
    ],
)
async def test_health_names_each_problem_by_hermes_limits(api, nodes, rates, fields, codes):
    nodes.read("dc1")
    nodes.tell(
        "dc1",
        "a",
        topics=[TopicStatus("shop.orders", rates=Published(10_000))],
        subscriptions=[consumed(rates, **{"lag": 0, **fields})],
    )
    health = (await api.get(f"{SUBSCRIPTION}/health")).json()
    assert health["status"] == ("UNHEALTHY" if codes else "HEALTHY")
    assert [problem["code"] for problem in health["problems"]] == codes
    assert all(problem["description"] for problem in health["problems"])


async def test_client_errors_are_a_problem_only_where_they_are_retried(api, nodes):
    nodes.read("dc1")
    nodes.tell("dc1", "a", subscriptions=[consumed({"codes_4xx": 50, "codes_2xx": 50})])
    assert (await api.get(f"{SUBSCRIPTION}/health")).json()["status"] == "HEALTHY"
    await api.put(SUBSCRIPTION, {"subscriptionPolicy": {"retryClientErrors": True}})
    (problem,) = (await api.get(f"{SUBSCRIPTION}/health")).json()["problems"]
    assert problem["code"] == "RECEIVING_MALFORMED_MESSAGES"
    assert problem["description"] == "50.0 of 100.0 attempts a second end with 4xx"


async def test_a_suspended_subscription_is_healthy(api, nodes):
    await api.put(f"{SUBSCRIPTION}/state", "SUSPENDED")
    assert (await api.get(f"{SUBSCRIPTION}/health")).json() == {
        "status": "HEALTHY",
        "problems": [],
    }


async def test_the_cause_of_failures_is_told_beside_their_share(api, nodes):
    nodes.read("dc1")
    failing = {"last_failure": "connect: refused", "last_failure_kind": "connect"}
    nodes.tell("dc1", "a", subscriptions=[consumed({"other_errors": 10}, **failing)])
    (problem,) = (await api.get(f"{SUBSCRIPTION}/health")).json()["problems"]
    assert problem["description"] == (
        "10.0 of 10.0 attempts a second end with no answer; pushes fail: connect: refused"
    )


async def test_nodes_with_the_same_trouble_are_one_problem_that_begins_with_the_cause(api, nodes):
    def slow(for_s, status):
        held = (because(Code.ONE_A_SECOND, for_s=for_s),)
        failure = {"last_failure": f"HTTP {status}", "last_failure_kind": str(status)}
        return consumed(level="SLOW", reasons=held, **failure)

    nodes.read("dc1")
    for name, for_s in (("a", 9.0), ("b", 61.0), ("c", 9.0), ("d", 9.0)):
        nodes.tell("dc1", name, subscriptions=[slow(for_s, 503)])
    nodes.tell("dc1", "e", subscriptions=[slow(9.0, 404)])
    first, second = (await api.get(f"{SUBSCRIPTION}/health")).json()["problems"]
    assert first == {
        "code": "MALFUNCTIONING",
        "description": "pushes fail: HTTP 503; one message a second until one succeeds, for 9.0 s "
        "(on dc1 a, dc1 b, dc1 c and 1 more)",
    }
    assert second["code"] == "RECEIVING_MALFORMED_MESSAGES"
    assert second["description"].endswith("(on dc1 e)")


async def test_open_dead_letters_are_a_problem_of_one_that_looks_well(api, nodes):
    nodes.read("dc1")
    nodes.read("dc2")
    # For a moment an old and a new owner both tell of the same ones.
    for name, letters in (("a", 3), ("b", 2), ("c", -1)):
        nodes.tell("dc1", name, subscriptions=[consumed(lag=0, open_letters=letters)])
    nodes.tell("dc2", "d", subscriptions=[consumed(lag=0, open_letters=1)])
    health = (await api.get(f"{SUBSCRIPTION}/health")).json()
    assert health["status"] == "UNHEALTHY"
    (problem,) = health["problems"]
    assert problem["description"] == "dead letters to re-drive or expire ('hermes dlq'): 4"
    rows = (await api.get("/status/subscriptions?unhealthy=true")).json()["subscriptions"]
    assert [(row["name"], row["openDeadLetters"]) for row in rows] == [("billing", 4)]


async def test_dead_letters_that_are_all_its_trouble_have_their_reason_beside_them(api, nodes):
    nodes.read("dc1")
    for name, at_ms, reason in (("a", 5, "CLIENT_ERROR: HTTP 404"), ("b", 9, "TTL_EXCEEDED: old")):
        last = LastUndelivered(at_ms, 0, 7, reason)
        nodes.tell(
            "dc1", name, subscriptions=[consumed(lag=0, open_letters=2, last_undelivered=last)]
        )
    (problem,) = (await api.get(f"{SUBSCRIPTION}/health")).json()["problems"]
    assert problem["description"] == (
        "dead letters to re-drive or expire ('hermes dlq'): 2; "
        "the last message was given up for TTL_EXCEEDED: old"
    )
