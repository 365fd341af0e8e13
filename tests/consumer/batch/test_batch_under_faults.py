"""Random answers, changes, log faults, crashes: what a batch consumer promises holds throughout."""

import json
import random

import pytest
import trio

from hermes_actors.consumer.senders.sender import Failure, SendOutcome
from hermes_actors.log.commits import decode
from hermes_actors.model.subscription import BatchBody

MESSAGES = 100
ANSWERS = [
    SendOutcome(200),
    SendOutcome(204),
    SendOutcome(302),
    SendOutcome(500),
    SendOutcome(503, "1"),
    SendOutcome(0, "", Failure.TIMEOUT),
    SendOutcome(0, "", Failure.OVERLOADED),
]


def messages_of(push):
    array = json.loads(push.body)
    return [each["message"] if isinstance(each, dict) else each for each in array]


@pytest.mark.parametrize("seed", range(8))
async def test_nothing_is_lost_first_deliveries_are_in_order_and_no_commit_passes_them(
    batches_of_three_partitions, autojump_clock, seed
):
    rng = random.Random(seed)
    batches = batches_of_three_partitions
    world = batches.world
    is_healed = False
    delivered = {partition: [] for partition in range(3)}
    bodies_of = {}

    def policy():
        return {
            "batch_size": rng.choice([1, 7, 50]),
            "batch_volume": rng.choice([40, 300, 64_000]),
            "batch_time": rng.choice([1, 1_000]),
            "message_rate": rng.choice([None, 40]),
            "body": rng.choice(list(BatchBody)),
            "message_backoff": 100,
            "message_ttl": 100_000,
        }

    def script(push):
        outcome = ANSWERS[0] if is_healed else rng.choice(ANSWERS)
        batch_id = push.lines.partition(b"Hermes-Batch-Id: ")[2][:36]
        # Equal ids mean equal bodies, whatever changed between attempts.
        assert bodies_of.setdefault(batch_id, push.body) == push.body
        if outcome.is_success:
            for partition, number in messages_of(push):
                if number not in delivered[partition]:
                    delivered[partition].append(number)
        return rng.random() * 0.2, outcome

    def check_commit(_group, _topic, partition, commit):
        for start, end in [(0, commit.position), *decode(commit).intervals]:
            assert set(range(start, end)) <= set(delivered[partition])

    world.sender.script = script
    world.log.on_commit.append(check_commit)
    for partition in range(3):
        bodies = [b"[%d,%d]" % (partition, n) for n in range(MESSAGES)]
        await world.publish(*bodies, partition=partition)

    stamp = 1
    for _ in range(3):
        # An envelope does not fit into the smallest volume, and nothing is to be given up here.
        async with batches.consuming({**policy(), "body": BatchBody.MESSAGES}) as consumer:
            for _ in range(4):
                await trio.sleep(rng.random() * 3)
                stamp += 1
                changed = {**policy(), "batch_volume": rng.choice([300, 64_000])}
                consumer.ref.tell(batches.live(stamp=stamp, policy=changed))
                await trio.sleep(rng.random() * 3)
                if rng.random() < 0.5:
                    consumer.supervisor.crash("consumer")
                world.log.faults.commits_failing = rng.random() < 0.3
                world.log.faults.reads_failing = rng.random() < 0.3
                await trio.sleep(rng.random() * 3)
                status = consumer.status()
                assert status.inflight <= 50
                assert not (status.inflight and status.waiting_retries)
    is_healed = True
    world.log.faults.commits_failing = world.log.faults.reads_failing = False
    async with batches.consuming({**policy(), "body": BatchBody.MESSAGES}):
        await trio.sleep(300)
    for partition in range(3):
        assert delivered[partition] == list(range(MESSAGES))
        assert (await world.committed(partition)).position == MESSAGES
    assert world.sender.inflight_high == 1 or world.crashes
    assert world.count("discarded") == 0
    assert all("cancelled" in str(crash.error) for crash in world.crashes), world.crashes
