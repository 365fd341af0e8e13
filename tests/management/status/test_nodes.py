"""All nodes are listed from their status records."""

import trio

from hermes_actors.status.fold import GONE_AFTER_S


async def test_all_nodes_are_listed_with_state_age_and_reasons(autojump_clock, api, nodes):
    nodes.read("dc1")
    nodes.read("dc2")
    nodes.tell("dc1", "gone")
    nodes.tell("dc2", "far")
    await trio.sleep(GONE_AFTER_S)
    nodes.tell(
        "dc1", "a", published_rate=1_500, delivered_rate=2_000, stopped_subscriptions=2, missed=3
    )
    nodes.tell("dc1", "b", reasons=("the metadata log is away",))
    nodes.tell("dc1", "c", is_leaving=True, spooled=12)
    nodes.read("dc2", "the log does not answer")
    body = (await api.get("/status/nodes")).json()
    assert body["datacenters"] == [
        {"datacenter": "dc1", "isKnown": True},
        {
            "datacenter": "dc2",
            "isKnown": False,
            "reason": "status of dc2 unknown since 2023-11-14T22:13:20Z: the log does not answer",
        },
    ]
    assert [(each["node"], each["state"], each["reasons"]) for each in body["nodes"]] == [
        ("a", "READY", []),
        ("b", "NOT_READY", ["the metadata log is away"]),
        ("c", "LEFT", ["12 messages stay in its spool"]),
        ("gone", "GONE", ["not heard from for 10 s"]),
        ("far", "UNKNOWN", [body["datacenters"][1]["reason"]]),
    ]
    first = body["nodes"][0]
    assert (first["publishedRate"], first["deliveredRate"], first["stoppedSubscriptions"]) == (
        1.5,
        2.0,
        2,
    )
    assert (first["ageMs"], first["missedRecords"], first["roles"]) == (0, 3, ["consumers"])


async def test_two_processes_of_one_name_are_told_of(api, nodes):
    nodes.read("dc1")
    for boot in ("b1", "b2", "b1", "b1"):
        nodes.tell("dc1", "a", boot=boot)
    (node,) = (await api.get("/status/nodes")).json()["nodes"]
    assert node["reasons"] == ["another process reports as a too; give each its own name"]


async def test_nodes_are_listed_also_while_the_metadata_cannot_be_read(api, nodes):
    nodes.read("dc1")
    nodes.tell("dc1", "a")

    def refuse():
        raise AssertionError("the list of nodes needs no metadata")

    api.administration.health.require_readable = refuse
    async with api.rebuilt() as client:
        assert len((await client.get("/status/nodes")).json()["nodes"]) == 1
