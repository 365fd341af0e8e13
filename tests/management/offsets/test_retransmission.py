"""Retransmission, lag and consumer groups, over logs in memory and what commits for consumers."""

from datetime import UTC, datetime

import pytest
import trio

from hermes_actors.config import ManagementConfig
from hermes_actors.consumer.offsets.resting import Resting
from hermes_actors.coordination.owned import Owned
from hermes_actors.log.base import Commit, TopicSettings
from hermes_actors.log.commits import CommitOwner, decode, encode
from hermes_actors.log.memory import MemoryLog
from hermes_actors.management.offsets.asking import Logs
from hermes_actors.management.offsets.retransmission import Retransmissions
from hermes_actors.management.offsets.standings import Standings
from hermes_actors.metadata.bodies import activation_body
from hermes_actors.metadata.catalog import SubscriptionChanged
from hermes_actors.metadata.commands import put
from hermes_actors.metadata.keys import activation_key
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_actors.status.fold import StatusFold
from hermes_actors.status.record import NodeHeader, StatusRecord, SubscriptionStatus

TOPIC = "shop.orders"
NAME = f"{TOPIC}$billing"
PATH = f"/topics/{TOPIC}/subscriptions/billing"
MOVE = f"{PATH}/retransmission"
GROUP = "shop_orders_billing"
OWNER = {"x-user": "ann", "x-teams": "finance"}


@pytest.fixture
def settings():
    return ManagementConfig(allow_removal=True, topic_partitions=2)


class World:
    """One subscription in two datacentres; `consume` takes its place in one of them."""

    def __init__(self, api, nursery):
        self.api = api
        self.nursery = nursery
        self.logs = {"dc1": api.log, "dc2": MemoryLog("dc2", api.clock)}
        self.start_ms = api.clock.ms
        self.fold = StatusFold()
        administration = api.administration
        logs = Logs(self.logs.values())
        shared = (administration.subscriptions, self.fold, api.clock)
        administration.standings = Standings(api.metadata, logs, *shared)
        administration.retransmissions = Retransmissions(
            api.metadata, logs, administration.subscriptions._changes, *shared[::2]
        )
        api.client = api.rebuilt()

    async def begin(self, **fields):
        """Ten records a second apart in each partition of both datacentres."""
        await self.api.with_topic()
        await self.api.with_subscription(**fields)
        for log in self.logs.values():
            if await log.topics.describe(TOPIC) is None:
                await log.topics.create(TOPIC, TopicSettings(partitions=2))
            for partition in range(2):
                records = [Record(None, b"m", (), self.start_ms + 1_000 * n) for n in range(10)]
                await log.append(TOPIC, partition, records, Ack.LEADER)
        self.api.clock.ms += 60_000

    async def activate(self):
        name = self.api.metadata.catalog.subscriptions[NAME].name
        await self.api.metadata.change(put(activation_key(name, "dc1"), activation_body(0)))

    def consume(self, *dcs):
        for dc in dcs:
            resting = Resting(self.logs[dc], self.api.clock, skew_ms=0)
            stop = trio.Event()
            self.nursery.start_soon(resting.run, stop)
            self.nursery.start_soon(self._feed, resting)

    async def _feed(self, resting):
        with self.api.metadata.watch() as watch:
            while await watch.wait():
                for change in watch.take_nowait():
                    if isinstance(change, SubscriptionChanged) and change.subscription:
                        resting.keep(change.subscription, TOPIC, Owned())

    async def committed(self, dc):
        commits = await self.logs[dc].committed(GROUP, TOPIC)
        return {partition: commit.position for partition, commit in commits.items()}

    async def move(self, body, status=200, **kwargs):
        answer = await self.api.put(MOVE, body, headers=OWNER, **kwargs)
        assert answer.status_code == status, answer.text
        return answer

    def date(self, seconds, form="%Y-%m-%dT%H:%M:%SZ"):
        return datetime.fromtimestamp(self.start_ms / 1_000 + seconds, UTC).strftime(form)


def offsets(answer):
    """Datacentre → partition → offset, and that each entry has Hermes' shape."""
    found = {}
    for dc, entries in answer.json().items():
        for entry in entries:
            assert entry["topic"] == {"value": TOPIC}
        found[dc] = {entry["partition"]: entry["offset"] for entry in entries}
    return found


@pytest.fixture
async def world(api, nursery, autojump_clock):
    world = World(api, nursery)
    await world.begin()
    return world


async def test_a_date_moves_all_partitions_of_all_datacentres(world):
    await world.activate()
    world.consume("dc1", "dc2")
    answer = await world.move({"retransmissionDate": world.date(4)})
    assert offsets(answer) == {"dc1": {0: 4, 1: 4}, "dc2": {0: 4, 1: 4}}
    # When it is answered, the offsets have moved.
    assert await world.committed("dc1") == await world.committed("dc2") == {0: 4, 1: 4}


async def test_a_dry_run_tells_and_moves_nothing_also_while_pending(world):
    date = world.date(4).replace("Z", "+00:00")
    answer = await world.move({"retransmissionDate": date}, params={"dryRun": "true"})
    assert offsets(answer)["dc1"] == {0: 4, 1: 4}
    assert world.api.metadata.catalog.subscriptions[NAME].seek is None


async def test_a_pending_subscription_is_refused(world):
    answer = await world.move({"retransmissionDate": world.date(4)}, 400)
    assert world.api.refusal(answer) == (400, "MOVING_SUBSCRIPTION_OFFSETS_VALIDATION_ERROR")
    assert world.api.metadata.catalog.subscriptions[NAME].seek is None


async def test_a_suspended_subscription_is_moved_before_it_is_answered(world):
    """Hermes does not wait for the offsets of a suspended subscription."""
    await world.api.put(f"{PATH}/state", "SUSPENDED", headers=OWNER)
    world.consume("dc1", "dc2")
    await world.move({"to": "start"})
    assert await world.committed("dc2") == {0: 0, 1: 0}
    await world.move({"to": "end"})
    assert await world.committed("dc1") == {0: 10, 1: 10}


@pytest.mark.parametrize("body", [{"retransmissionDate": "2999-01-01T00:00:00Z"}, {"to": "end"}])
async def test_the_future_is_the_end(world, body):
    await world.activate()
    world.consume("dc1", "dc2")
    assert offsets(await world.move(body))["dc2"] == {0: 10, 1: 10}
    seek = world.api.metadata.catalog.subscriptions[NAME].seek
    assert seek.body.time_ms == world.api.clock.ms


async def test_offsets_move_only_what_they_name_and_stay_within_the_log(world):
    await world.activate()
    world.consume("dc1", "dc2")
    await world.move({"to": "start"})
    world.logs["dc2"].topics.known(TOPIC).partitions[1].start = 5
    answer = await world.move({"offsets": {"dc1": {"0": 7}, "dc2": {"1": 3, "0": 99}}})
    assert offsets(answer) == {"dc1": {0: 7}, "dc2": {0: 10, 1: 5}}
    assert await world.committed("dc1") == {0: 7, 1: 0}
    assert await world.committed("dc2") == {0: 10, 1: 5}


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ({}, "VALIDATION_ERROR", "it has none of them"),
        ({"retransmissionDate": None}, "VALIDATION_ERROR", "it has none of them"),
        ({"to": "end", "offsets": {}}, "VALIDATION_ERROR", "to and offsets"),
        ({"retransmissionDate": "yesterday"}, "FORMAT_ERROR", "'yesterday' is not"),
        ({"retransmissionDate": "2030-01-31T12:00:00"}, "FORMAT_ERROR", "has no time zone"),
        ({"retransmissionDate": 5}, "FORMAT_ERROR", "retransmissionDate: Expected `str | null`"),
        ({"to": "middle"}, "FORMAT_ERROR", "it is one of start, end"),
        ({"offsets": {}}, "VALIDATION_ERROR", "names no partition"),
        ({"offsets": {"dc1": {"0": -1}}}, "FORMAT_ERROR", "offsets[dc1][0]: Expected `int` >= 0"),
        (
            {"offsets": {"dc1": {"0": 1}, "dc2": {"zero": 1}}},
            "FORMAT_ERROR",
            "offsets[dc2][zero]: the key is wrong",
        ),
        (
            {"offsets": 5},
            "FORMAT_ERROR",
            "offsets: Expected `object | null`, got `int`",
        ),
    ],
)
async def test_a_body_that_makes_no_sense_is_refused_with_what_would(world, body, code, said):
    answer = await world.move(body, 400)
    assert world.api.refusal(answer) == (400, code)
    assert said in world.api.message(answer)


async def test_unknown_datacentres_and_partitions_are_named(world):
    answer = await world.move({"offsets": {"dc9": {"0": 1}}}, 404)
    assert world.api.refusal(answer) == (404, "BROKERS_CLUSTER_NOT_FOUND_EXCEPTION")
    assert "no datacentre dc9; there are dc1, dc2" in world.api.message(answer)
    answer = await world.move({"offsets": {"dc2": {"7": 1}}}, 404)
    assert world.api.refusal(answer) == (404, "PARTITIONS_NOT_FOUND_FOR_TOPIC")
    assert "no partition 7" in world.api.message(answer)


async def test_consumers_that_do_not_follow_in_time_are_named_and_follow_later(world):
    await world.activate()
    world.consume("dc1")
    before_s = trio.current_time()
    answer = await world.move({"retransmissionDate": world.date(4)}, 500)
    assert trio.current_time() - before_s == pytest.approx(30, abs=1)
    assert world.api.refusal(answer) == (500, "UNABLE_TO_MOVE_OFFSETS_EXCEPTION")
    assert "in dc2 have not moved" in world.api.message(answer)
    assert await world.committed("dc1") == {0: 4, 1: 4}
    world.consume("dc2")
    await trio.sleep(1)
    assert await world.committed("dc2") == {0: 4, 1: 4}


async def test_a_datacentre_that_cannot_be_reached_resolves_the_time_when_it_is_back(world):
    await world.activate()
    world.consume("dc1", "dc2")
    await trio.sleep(1)
    world.logs["dc2"].faults.cut()
    answer = await world.move({"retransmissionDate": world.date(4)})
    assert offsets(answer) == {"dc1": {0: 4, 1: 4}, "dc2": {}}
    world.logs["dc2"].faults.heal()
    await trio.sleep(10)
    assert await world.committed("dc2") == {0: 4, 1: 4}


async def test_a_subscription_of_the_same_name_made_anew_knows_nothing_of_the_seek(world):
    await world.activate()
    world.consume("dc1", "dc2")
    await world.move({"to": "start"})
    await world.api.client.delete(PATH, headers=OWNER)
    await world.api.with_subscription()
    assert world.api.metadata.catalog.subscriptions[NAME].seek is None


# Lag and consumer groups.


async def commit(world, dc, position, intervals=(), partition=0):
    metadata = encode(position, intervals, CommitOwner(0, 0))
    await world.logs[dc].commit(GROUP, TOPIC, {partition: Commit(position, metadata)})


async def test_one_message_that_waits_is_a_lag_of_one(world):
    """In Hermes everything delivered after it counts as lag too."""
    for dc in world.logs:
        await commit(world, dc, 10, partition=1)
    await commit(world, "dc1", 3, [(4, 10)])
    await commit(world, "dc2", 10)
    found = (await world.api.get(f"{PATH}/lag")).json()
    assert found["lag"] == 1
    assert [each["lag"] for each in found["datacenters"]] == [1, 0]
    assert found["datacenters"][0]["partitions"][0] == {
        "partition": 0,
        "position": 3,
        "start": 0,
        "end": 10,
        "lag": 1,
        "isSeekPending": False,
    }


async def test_a_lag_that_is_not_known_is_told_with_its_reason(world):
    await commit(world, "dc1", 4)
    world.logs["dc2"].faults.cut()
    found = (await world.api.get(f"{PATH}/lag")).json()
    first, second = found["datacenters"]
    assert found["lag"] == first["lag"] == second["lag"] == -1
    assert first["partitions"][0]["lag"] == 6
    assert first["partitions"][1]["position"] is None
    assert "no consumer of it has committed" in first["reason"]
    assert (second["isKnown"], second["partitions"]) == (False, [])
    assert "cannot be reached" in second["reason"]


async def test_a_commit_of_an_earlier_life_is_no_position(world):
    metadata = encode(5, (), CommitOwner(0, 99))
    await world.logs["dc1"].commit(GROUP, TOPIC, {0: Commit(5, metadata)})
    found = (await world.api.get(f"{PATH}/lag")).json()
    assert found["datacenters"][0]["partitions"][0]["position"] is None


async def test_a_retransmission_that_is_not_taken_up_yet_is_told(world):
    await world.activate()
    for dc in world.logs:
        for partition in range(2):
            await commit(world, dc, 10, partition=partition)
    await world.move({"to": "start"}, 500)
    found = (await world.api.get(f"{PATH}/lag")).json()
    assert [each["isSeekPending"] for each in found["datacenters"][0]["partitions"]] == [True] * 2
    assert "not taken up the last retransmission" in found["datacenters"][0]["reason"]


def heard_of(world, node="n1"):
    header = NodeHeader(node=node, dc="dc1", boot_id="b", sequence=1, roles=("consumers",))
    record = StatusRecord(header, (), (SubscriptionStatus(name=NAME),))
    world.fold.report("dc1", "", 0, trio.current_time())
    world.fold.take("dc1", record, trio.current_time())


async def test_a_consumer_group_has_hermes_shape(world):
    await commit(world, "dc1", 3, [(4, 10)])
    heard_of(world)
    first, second = (await world.api.get(f"{PATH}/consumer-groups")).json()
    (member,) = first.pop("members")
    assert first == {
        "clusterName": "dc1",
        "groupId": GROUP,
        "state": "Stable",
        "empty": False,
        "stable": True,
    }
    partition = member.pop("partitions")[0]
    assert member == {"consumerId": "n1", "clientId": "n1", "host": "n1"}
    metadata = partition.pop("offsetMetadata")
    assert decode(Commit(3, metadata)).intervals == ((4, 10),)
    assert partition == {
        "partition": 0,
        "topic": TOPIC,
        "currentOffset": 3,
        "logEndOffset": 10,
        "lag": 1,
        "contentType": "JSON",
    }
    assert (second["state"], second["members"]) == ("Empty", [])


async def test_the_group_of_a_suspended_subscription_is_empty(world):
    await world.api.put(f"{PATH}/state", "SUSPENDED", headers=OWNER)
    heard_of(world)
    first, _ = (await world.api.get(f"{PATH}/consumer-groups")).json()
    assert (first["state"], first["empty"], first["members"]) == ("Empty", True, [])
