"""Nodes are drained by name, on purpose, and not all of them."""

import pytest

from hermes_actors.management.access.roles import Anonymous
from hermes_actors.model.workload import NodeDrain
from hermes_actors.status.fold import StatusFold
from hermes_actors.status.record import NodeHeader, StatusRecord

DRAINS = "/balancer/drains"


def header(node, dc="dc1", roles=("consumers",), **fields):
    return NodeHeader(
        node=node,
        dc=dc,
        boot_id=f"boot-{node}",
        sequence=1,
        roles=roles,
        version="1",
        started_at_ms=0,
        written_at_ms=0,
        reasons=(),
        missed=0,
        round=1,
        topics=0,
        subscriptions=0,
        **fields,
    )


@pytest.fixture
def nodes(api):
    """Two consuming nodes here, one elsewhere, and one that publishes only."""
    fold = StatusFold()
    for dc in ("dc1", "dc2"):
        fold.report(dc, "", api.clock.ms, api.clock.monotonic_s())
    for each in (
        header("a"),
        header("b"),
        header("front", roles=("frontend",)),
        header("left", is_leaving=True),
        header("c", "dc2"),
    ):
        fold.take(each.dc, StatusRecord(each, (), ()), api.clock.monotonic_s())
    api.administered_with(status=fold, datacenters=("dc2",))
    return api


async def test_a_drained_node_is_drained_until_that_is_undone(nodes):
    answer = await nodes.put(f"{DRAINS}/dc1/a", {"reason": "new disks"})
    assert answer.status_code == 201
    drain = NodeDrain(since_ms=nodes.clock.ms, by=Anonymous.name, reason="new disks")
    assert nodes.metadata.catalog.drains == {("dc1", "a"): drain}
    assert (await nodes.put(f"{DRAINS}/dc1/a", {})).status_code == 200
    assert nodes.metadata.catalog.drains == {("dc1", "a"): drain}
    undone = await nodes.delete(f"{DRAINS}/dc1/a")
    assert (undone.status_code, undone.json()) == (200, {"wasDrained": True})
    assert (await nodes.delete(f"{DRAINS}/dc1/a")).json() == {"wasDrained": False}
    assert nodes.metadata.catalog.drains == {}


async def test_a_body_is_not_needed(nodes):
    answer = await nodes.client.put(f"{DRAINS}/dc1/a")
    assert answer.status_code == 201


@pytest.mark.parametrize("node", ["d", "front", "left", "c"])
async def test_a_node_that_consumes_nothing_there_is_refused_with_the_list(nodes, node):
    answer = await nodes.put(f"{DRAINS}/dc1/{node}", {})
    assert nodes.refusal(answer) == (400, "VALIDATION_ERROR")
    assert "known are: a, b" in nodes.message(answer)
    assert nodes.metadata.catalog.drains == {}
    forced = await nodes.put(f"{DRAINS}/dc1/{node}?force=true", {})
    assert forced.status_code == 201


async def test_the_last_node_of_a_datacentre_is_not_drained_by_accident(nodes):
    assert (await nodes.put(f"{DRAINS}/dc1/a", {})).status_code == 201
    for path in (f"{DRAINS}/dc1/b", f"{DRAINS}/dc2/c"):
        answer = await nodes.put(path, {})
        assert answer.status_code == 400
        assert "the last" in nodes.message(answer)
        assert (await nodes.put(f"{path}?force=true", {})).status_code == 201
    assert nodes.metadata.catalog.draining_in("dc1") == ["a", "b"]


async def test_an_unknown_datacentre_is_refused_even_if_forced(nodes):
    for answer in (
        await nodes.put(f"{DRAINS}/dc9/a?force=true", {}),
        await nodes.delete(f"{DRAINS}/dc9/a"),
    ):
        assert answer.status_code == 400
        assert "dc1, dc2" in nodes.message(answer)


@pytest.mark.parametrize("node", ["a%20b", "a%2Fb", "x" * 201])
async def test_what_cannot_be_a_nodes_name_is_refused_even_if_forced(nodes, node):
    answer = await nodes.put(f"{DRAINS}/dc1/{node}?force=true", {})
    assert answer.status_code in (400, 404)
    assert nodes.metadata.catalog.drains == {}


async def test_a_reason_has_a_bound(nodes):
    answer = await nodes.put(f"{DRAINS}/dc1/a", {"reason": "x" * 1_025})
    assert answer.status_code == 400
    assert "1024" in nodes.message(answer)
