"""Random answers, log faults, crashes: what a consumer promises must hold throughout."""

import random

import pytest
import trio

from hermes_actors.consumer.senders.sender import Failure, SendOutcome
from hermes_actors.log.commits import decode

MESSAGES = 400
ANSWERS = [
    SendOutcome(200),
    SendOutcome(204),
    SendOutcome(302),
    SendOutcome(500),
    SendOutcome(503, "1"),
    SendOutcome(503, "Wed, 21 Oct 2015 07:28:00 GMT"),
    SendOutcome(0, "", Failure.TIMEOUT),
    SendOutcome(0, "", Failure.CONNECT),
]


@pytest.mark.parametrize("seed", range(12))
async def test_nothing_is_lost_and_no_commit_passes_what_is_not_delivered(
    make_world, autojump_clock, seed
):
    rng = random.Random(seed)
    world = make_world(
        partitions=3,
        waiting_retries_max=rng.choice([20, 1_000]),
        unsettled_span_max=rng.choice([50, 1_000_000]),
        inflight_max=rng.choice([1, 4, 16]),
        read_batch_records_max=rng.choice([1, 10, 1_000]),
        stop_grace_ms=1_000,
    )
    await world.create()
    is_healed = False
    delivered = set()

    def script(push):
        outcome = ANSWERS[0] if is_healed else rng.choice(ANSWERS)
        if outcome.is_success:
            # From here on the subscriber has it, whatever becomes of the answer.
            delivered.add(push.body)
        return rng.random() * 0.2, outcome

    def check_commit(_group, _topic, partition, commit):
        intervals = [(0, commit.position), *decode(commit).intervals]
        for start, end in intervals:
            for offset in range(start, end):
                assert b"%d/%d" % (partition, offset) in delivered

    world.sender.script = script
    world.log.on_commit.append(check_commit)
    for partition in range(3):
        bodies = [b"%d/%d" % (partition, n) for n in range(MESSAGES // 4)]
        await world.publish(*bodies, partition=partition)

    live = world.live(policy={"message_backoff": 200, "rate": rng.choice([50, 100_000])})
    for _ in range(3):
        async with world.consuming(live) as consumer:
            for _ in range(4):
                await trio.sleep(rng.random() * 3)
                consumer.supervisor.crash("consumer")
                world.log.faults.commits_failing = rng.random() < 0.3
                world.log.faults.reads_failing = rng.random() < 0.3
                await trio.sleep(rng.random() * 3)
            status = consumer.status()
            assert status.inflight <= world.config.inflight_max
            assert status.waiting_retries <= world.config.waiting_retries_max
    is_healed = True
    world.log.faults.commits_failing = world.log.faults.reads_failing = False
    async with world.consuming(live):
        await trio.sleep(120)
    assert len(delivered) == 3 * (MESSAGES // 4)
    for partition in range(3):
        assert (await world.committed(partition)).position == MESSAGES // 4
    assert world.count("discarded") == 0
    assert all("cancelled" in str(crash.error) for crash in world.crashes), world.crashes
