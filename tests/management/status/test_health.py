"""Health, by Hermes' limits."""

from hermes_actors.status.reasons import Code, because
from hermes_actors.status.record import LastUndelivered
from tests.management.statuses_scene import SUBSCRIPTION, consumed


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
