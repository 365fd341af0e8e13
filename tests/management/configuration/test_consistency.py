"""Two datacentres' metadata compared and synchronised, and log topics that no metadata knows."""

import json
import random

import pytest
import trio
import trio.testing

from hermes_actors.log.base import TopicSettings
from hermes_actors.log.memory import MemoryLog
from hermes_actors.metadata.commands import delete
from hermes_actors.metadata.commands import put as put_of
from hermes_actors.metadata.registry import Metadata, Registry
from hermes_actors.metadata.replication import Replicator
from hermes_actors.runtime.clock import seeded_ids

DIFFERENCES = "/consistency/inconsistencies/groups"
STRAY = "/consistency/inconsistencies/topics"


class Pair:
    """dc1, whose management is asked, and dc2; each copies from the other on demand only."""

    def __init__(self, api, other, nursery):
        self.api = api
        self.other = other
        self.nursery = nursery

    async def copied(self, *ways):
        """Run the replicators of these ways, as (source, target), until both are equal."""
        sites = {"dc1": self.api.metadata, "dc2": self.other}
        stop = trio.Event()
        for source, target in ways or (("dc1", "dc2"), ("dc2", "dc1")):
            replicator = Replicator(
                sites[source].log, sites[target], clock=self.api.clock, rng=random.Random(1)
            )
            self.nursery.start_soon(replicator.run, stop)
        with trio.fail_after(10):
            while self.api.metadata.state.digest != self.other.state.digest:
                await trio.testing.wait_all_tasks_blocked()
        stop.set()

    async def differing(self, **query):
        answer = await self.api.get(DIFFERENCES, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def sync(self, path, primary):
        return await self.api.post(
            f"/consistency/sync/{path}", None, params={"primaryDatacenter": primary}
        )


@pytest.fixture
async def pair(api, nursery):
    rng = random.Random(2)
    log = MemoryLog("dc2", api.clock)
    other = Metadata(log, clock=api.clock, ids=seeded_ids(rng), rng=rng)
    nursery.start_soon(Registry(other).run, trio.Event())
    await other.wait_current()
    api.metadata.standins = (other,)
    api.administered_with(remote_logs=(log,), datacenters=("dc2",))
    await api.with_topic()
    await api.with_subscription(oAuthPolicy=None, endpoint="https://u:secret@x.test/")
    return Pair(api, other, nursery)


async def test_equal_datacentres_have_no_differences(pair):
    await pair.copied(("dc1", "dc2"))
    assert await pair.differing() == []
    assert (await pair.api.get("/consistency/groups")).json() == ["shop"]


async def test_what_one_datacentre_lacks_is_shown_in_hermes_format_and_can_be_removed(pair):
    (group,) = await pair.differing(groupNames=["shop", "none"])
    assert list(group) == ["name", "inconsistentMetadata", "inconsistentTopics"]
    here, there = group["inconsistentMetadata"]
    assert (here["datacenter"], json.loads(here["content"])["groupName"]) == ("dc1", "shop")
    assert there == {"datacenter": "dc2"}
    (topic,) = group["inconsistentTopics"]
    assert json.loads(topic["inconsistentMetadata"][0]["content"])["name"] == "shop.orders"
    (subscription,) = topic["inconsistentSubscriptions"]
    assert subscription["name"] == "shop.orders$billing"
    content = subscription["inconsistentMetadata"][0]["content"]
    assert json.loads(content)["endpoint"] == "https://u:*****@x.test/"
    assert await pair.differing(groupNames="none") == []

    refused = await pair.sync("topics/shop.orders", "dc2")
    assert pair.api.refusal(refused) == (400, "VALIDATION_ERROR")
    assert "is not empty; sync what it holds first" in pair.api.message(refused)
    for path in (
        "topics/shop.orders/subscriptions/billing",
        "topics/shop.orders",
        "groups/shop",
        # There is nothing left.
        "groups/shop",
    ):
        assert (await pair.sync(path, "dc2")).status_code == 200
    assert await pair.differing() == []
    assert pair.api.metadata.catalog.groups == {}


async def test_an_older_version_wins_if_it_is_chosen_and_the_others_copy_it(pair):
    await pair.copied(("dc1", "dc2"))
    path = "topics/shop.orders"
    await pair.api.put(f"/{path}", {"description": "newer"})
    (group,) = await pair.differing()
    assert group["inconsistentMetadata"] == []
    for copy in group["inconsistentTopics"][0]["inconsistentMetadata"]:
        wanted = "newer" if copy["datacenter"] == "dc1" else "what is ordered"
        assert json.loads(copy["content"])["description"] == wanted

    # The newest version reaches the others anyway.
    before = pair.api.metadata.state.position
    assert (await pair.sync(path, "dc1")).status_code == 200
    assert pair.api.metadata.state.position == before
    assert (await pair.sync(path, "dc2")).status_code == 200
    assert await pair.differing() == []
    await pair.copied()
    for metadata in (pair.api.metadata, pair.other):
        assert metadata.catalog.topics["shop.orders"].topic.description == "what is ordered"


async def test_an_own_older_version_can_be_made_the_newest(pair):
    await pair.copied(("dc1", "dc2"))
    key = "topic/shop/orders"
    there = pair.other.register(key)
    newer = there.body.replace(b"what is ordered", b"newer")
    pair.api.clock.ms += 1_000
    await pair.other.change(put_of(key, newer))
    # Of two changes in the same millisecond, dc2's wins.
    assert (await pair.sync("topics/shop.orders", "dc1")).status_code == 503
    pair.api.clock.ms += 1
    assert (await pair.sync("topics/shop.orders", "dc1")).status_code == 200
    await pair.copied()
    assert pair.other.register(key).body == there.body


async def test_a_life_that_has_not_arrived_yet_cannot_be_overruled(pair):
    await pair.copied(("dc1", "dc2"))
    pair.api.clock.ms += 1_000
    key = "subscription/shop/orders/billing"
    body = pair.other.register(key).body
    await pair.other.change(delete(key))
    await pair.other.change(put_of(key, body))
    path = "topics/shop.orders/subscriptions/billing"
    await pair.api.put(f"/{path}", {"description": "older"})
    answer = await pair.sync(path, "dc1")
    assert pair.api.refusal(answer) == (503, "OTHER")
    assert "dc1 has not copied yet; try again" in pair.api.message(answer)


async def test_nothing_is_created_without_what_it_belongs_to(pair):
    await pair.copied(("dc1", "dc2"))
    pair.api.clock.ms += 1_000
    for path in ("topics/shop.orders/subscriptions/billing", "topics/shop.orders", "groups/shop"):
        assert (await pair.api.delete(f"/{path}")).status_code == 200
    answer = await pair.sync("topics/shop.orders", "dc2")
    assert pair.api.message(answer) == "group/shop does not exist in dc1; sync it first"
    for path in ("groups/shop", "topics/shop.orders"):
        assert (await pair.sync(path, "dc2")).status_code == 200
    await pair.copied()
    assert pair.other.catalog.topics.keys() == {"shop.orders"}


async def test_a_datacentre_that_does_not_answer_is_named(pair):
    pair.other.report("the log does not answer")
    answer = await pair.api.get(DIFFERENCES)
    assert pair.api.refusal(answer) == (503, "OTHER")
    assert "dc2: the log does not answer" in pair.api.message(answer)
    pair.other.report("")
    answer = await pair.sync("groups/shop", "dc7")
    assert "primaryDatacenter: there is no 'dc7'; there are dc1, dc2" in pair.api.message(answer)


async def test_log_topics_that_no_metadata_knows_are_listed_and_deleted(pair):
    await pair.api.delete("/topics/shop.orders/subscriptions/billing")
    await pair.api.delete("/topics/shop.orders")
    for log in (pair.api.log, pair.other.log):
        for topic in ("shop.stray", "plain", "_hermes.dlq.shop"):
            await log.topics.create(topic, TopicSettings())
    # A deleted topic's log topic is the reconciler's.
    assert (await pair.api.get(STRAY)).json() == ["shop.stray"]
    for wrong in ("plain", "shop.orders", "_hermes.metadata"):
        answer = await pair.api.delete(STRAY, params={"topicName": wrong})
        assert pair.api.refusal(answer) == (404, "TOPIC_NOT_EXISTS")
    assert (await pair.api.delete(STRAY, params={"topicName": "shop.stray"})).status_code == 200
    assert (await pair.api.get(STRAY)).json() == []
    assert await pair.other.log.topics.describe("shop.stray") is None
